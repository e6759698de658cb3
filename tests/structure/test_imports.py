"""The sentence on imports in ARCHITECTURE.md is true: each part imports from those below it, never from above."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: From the bottom up; a part may import from itself and from parts on lower lines.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "names", "rng", "lazy", "catalogue", "disk", "output", "shipped"),
    ("metrics",),
    ("kinds",),
    ("schema",),
    ("statistics",),
    ("data",),
    ("hooks",),
    ("models",),
    ("training",),
    ("methods",),
    ("evaluate",),
    ("settings",),
    ("runs",),
    ("grid",),
    ("serve",),
    ("fit",),
    ("report",),
    ("contract",),
    ("tracking", "api", "classifier"),
    ("stages",),
    ("__main__",),
)
#: Imports upwards that are still to be mended; none may be added.
OPEN = {"regft_core.schema.params"}
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


#: Module -> its file.
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("regft_core", "stages")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def part_of(module: str) -> str | None:
    package, *names = module.split(".")
    return package if package == "stages" else names[0] if package == "regft_core" and names else None


@cache
def imports(module: str) -> list[tuple[int, str]]:
    """(line, module) of what runs; what only type checkers read is left out."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            # `from regft_core import metrics` names a file or a folder, not the face of the package.
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.append((node.lineno, inner if inner in MODULES else node.module))
    return found


def test_every_part_has_its_place() -> None:
    parts = {part_of(module) for module in MODULES} - {None}
    assert parts <= set(LEVEL), "give new parts of regft_core a line in LAYERS"


def test_imports_point_down() -> None:
    parts = {module: part for module in MODULES if module not in OPEN and (part := part_of(module)) is not None}
    wrong = [
        f"{module}, line {line}, imports {imported}"
        for module, own in parts.items()
        for line, imported in imports(module)
        if (other := part_of(imported)) in LEVEL
        and (LEVEL[other] > LEVEL[own] or (other != own and LEVEL[other] == LEVEL[own] > 0))
    ]
    assert not wrong


def test_no_two_files_import_each_other() -> None:
    """Also not through others: the graph of modules, without what only type checkers read, has no circle."""
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done:
            return
        for other in sorted({name for _, name in imports(module) if name in MODULES and name != module}):
            walk(other, (*trail, module))
        done.add(module)

    for module in MODULES:
        walk(module, ())

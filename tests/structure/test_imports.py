"""The sentence on imports in ARCHITECTURE.md is true: each part imports from those below it, never from above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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
    ("tracking", "api"),
    ("stages",),
    ("__main__",),
)
#: Imports upwards that are still to be mended; none may be added.
OPEN = {"regft_core/schema/params.py"}
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


def is_file(module: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


FILES = sorted(
    path.relative_to(ROOT).as_posix() for folder in ("regft_core", "stages") for path in (ROOT / folder).rglob("*.py")
)


def part_of(module: str) -> str | None:
    names = module.split(".")
    if names[0] == "stages":
        return "stages"
    if names[0] != "regft_core" or len(names) < 2:
        return None
    return names[1]


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) of what runs; what only type checkers read is left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
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
                found.append((node.lineno, inner if is_file(inner) else node.module))
    return found


def test_every_part_has_its_place() -> None:
    parts = {part for file in FILES if (part := part_of(file.removesuffix(".py").replace("/", "."))) is not None}
    assert parts - {"__init__"} <= set(LEVEL), "give new parts of regft_core a line in LAYERS"


@pytest.mark.parametrize("file", FILES)
def test_imports_point_down(file: str) -> None:
    own = part_of(file.removesuffix(".py").replace("/", "."))
    if own is None or own == "__init__" or file in OPEN:
        return
    wrong = [
        f"{file}:{line} imports {module}"
        for line, module in imports(ROOT / file)
        if (other := part_of(module)) in LEVEL
        and (LEVEL[other] > LEVEL[own] or (other != own and LEVEL[other] == LEVEL[own] > 0))
    ]
    assert not wrong


def test_no_two_files_import_each_other() -> None:
    """Also not through others: the graph of modules, without what only type checkers read, has no circle."""
    modules = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in FILES}
    edges = {
        module: {name for _, name in imports(ROOT / file) if name in modules and name != module}
        for module, file in modules.items()
    }
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done:
            return
        for other in sorted(edges[module]):
            walk(other, (*trail, module))
        done.add(module)

    for module in sorted(modules):
        walk(module, ())

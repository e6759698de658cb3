"""Where code stands is in no key: modules, rooms, functions and classes may move, and every stored run is found."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code_copy import answers, with_code
from tests.runs.conftest import write_method


def sources(root: Path) -> list[Path]:
    return [*(root / "regft_core").rglob("*.py"), *(root / "stages").rglob("*.py")]


def move_module(root: Path, old: str, new: str) -> None:
    """Move a module or a package, and fix what imports or names it, as a refactoring would."""
    (package, name), (other, renamed) = old.rsplit(".", 1), new.rsplit(".", 1)
    source, target = (root.joinpath(*module.split(".")) for module in (old, new))
    if not source.is_dir():
        source, target = source.with_suffix(".py"), target.with_suffix(".py")
    if not target.parent.exists():
        target.parent.mkdir()
        (target.parent / "__init__.py").write_text("")
    shutil.move(source, target)
    found = 0
    for path in sources(root):
        text, dotted = re.subn(rf"\b{re.escape(old)}\b", new, path.read_text())
        # As a module of its package; only alone in its line here.
        text, alone = re.subn(
            rf"from {re.escape(package)} import {name}$", f"from {other} import {renamed} as {name}", text, flags=re.M
        )
        found += dotted + alone
        path.write_text(text)
    assert found


def move_definition(root: Path, name: str, old: str, new: str) -> None:
    """Move a function or class to another module, with the imports that it needs, and fix who imports it."""
    source, target = (root.joinpath(*module.split(".")).with_suffix(".py") for module in (old, new))
    if not source.exists():
        source = source.with_suffix("") / "__init__.py"
    text = source.read_text()
    [node] = [one for one in ast.parse(text).body if getattr(one, "name", "") == name]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    lines = text.splitlines(keepends=True)
    moved = "".join(lines[first - 1 : node.end_lineno])
    used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    needed = [
        ast.unparse(type(one)(**{**vars(one), "names": [alias]}))
        for one in ast.walk(ast.parse(text))
        if isinstance(one, ast.Import | ast.ImportFrom)
        for alias in one.names
        if (alias.asname or alias.name).split(".")[0] in used
    ]
    needed += [
        f"from {old} import {one.name}" for one in ast.parse(text).body if getattr(one, "name", name) in used - {name}
    ]
    source.write_text(without_unused("".join([*lines[: first - 1], *lines[node.end_lineno :]])))
    if not target.exists():
        target.write_text('"""A new place."""\n\nfrom __future__ import annotations\n')
    imports, definition = "\n".join(needed), f"\n\n{moved}"
    target.write_text(with_import(target.read_text(), imports) + definition)
    for path in sources(root):
        text = path.read_text()
        fixed = without_name(text, old, name, f"from {new} import {name}")
        if fixed == text and path == source and re.search(rf"\b{name}\b", text):
            fixed = with_import(fixed, f"from {new} import {name}")
        path.write_text(fixed)


def without_unused(text: str) -> str:
    """Take out imports that nothing mentions, as a linter does."""
    for node in ast.walk(ast.parse(text)):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            local = alias.asname or alias.name
            if len(re.findall(rf"\b{local}\b", text)) == 1 and local != "annotations":
                text = without_name(text, getattr(node, "module", ""), alias.name)
    return text


def with_import(text: str, statement: str) -> str:
    """Add imports at the top of a module, below ``from __future__``."""
    head = "from __future__ import annotations\n"
    return text.replace(head, f"{head}{statement}\n", 1) if head in text else f"{statement}\n{text}"


def without_name(text: str, module: str, name: str, instead: str = "pass") -> str:
    """Take one name out of every ``from module import ...``, with another statement in its place."""
    whole = text
    for node in ast.walk(ast.parse(whole)):
        if not isinstance(node, ast.Import | ast.ImportFrom) or getattr(node, "module", "") != module:
            continue
        if name in [one.name for one in node.names]:
            old = ast.get_source_segment(whole, node)
            assert old is not None
            rest = [one for one in node.names if one.name != name]
            node.names = rest
            text = text.replace(old, "; ".join([*([ast.unparse(node)] if rest else []), instead]), 1)
    return text


MOVES: dict[str, Callable[[Path], None]] = {
    "a module to another room": lambda root: move_module(root, "regft_core.models.pooling", "regft_core.data.pooling"),
    "a module under another name": lambda root: move_module(root, "regft_core.data.shuffle", "regft_core.data.order"),
    "a module to a new room": lambda root: move_module(root, "regft_core.rng", "regft_core.kept.streams"),
    "an entry": lambda root: move_module(root, "regft_core.runs.training_run", "regft_core.training.one_run"),
    "what keeps runs": lambda root: move_module(root, "regft_core.runs.store", "regft_core.kept"),
    "a room of code that trains": lambda root: move_module(root, "regft_core.training", "regft_core.learning"),
    "a room of entries": lambda root: move_module(root, "regft_core.models.families", "regft_core.models.kinds"),
    "a function": lambda root: move_definition(root, "shuffled", "regft_core.data.shuffle", "regft_core.data.examples"),
    "a function out of an entry": lambda root: move_definition(
        root, "make_deterministic", "regft_core.runs.training_run", "regft_core.training.exact"
    ),
    "a class": lambda root: move_definition(root, "BestState", "regft_core.training.best", "regft_core.models.pooling"),
    "a class of values": lambda root: move_definition(
        root, "DropoutWish", "regft_core.hooks.declare", "regft_core.hooks.wishes"
    ),
    "the base of all options": lambda root: move_definition(
        root, "StrictModel", "regft_core.schema", "regft_core.settings.strict"
    ),
}


@pytest.fixture(scope="module")
def copied(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = with_code(Path(shutil.copytree(template, tmp_path_factory.mktemp("moves") / "project")))
    repeat = {"times": 2, "merge": "greedy", "vary": ["order"]}
    write_method(root, "soup", phases={"finetune": {"data": {"split": 0.8}, "repeat": repeat}})
    return root


@pytest.fixture(scope="module")
def before(copied: Path) -> dict[str, Any]:
    [found] = answers(copied, [])
    return found


@pytest.mark.parametrize("move", MOVES)
def test_moved_code_computes_the_runs_of_before(
    copied: Path, before: dict[str, Any], move: str, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(copied, tmp_path / "project", symlinks=True))
    MOVES[move](root)
    [after] = answers(root, [])
    assert "error" not in after, after["error"]
    assert after["runs"] == before["runs"]
    assert after["stages"] == before["stages"]

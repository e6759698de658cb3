"""Mutation check: small faults put into a room's code, each of which some test of the room must notice.

    python -m tests.mutation training --sample 20 --seed 0
    python -m tests.mutation methods --file l2_sp --sample 10

Works in a copy of the tracked files. The same seed gives the same faults while the code is the same, so that two
versions of the tests can be compared. Prints every fault with its line and exits with 1 where one survives.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Room -> what runs after the tests, of the room or of methods, that name the changed module.
ROOMS: dict[str, list[str]] = {
    **{room: [] for room in ("data", "evaluate", "grid", "kinds", "models", "runs", "settings", "statistics")},
    "methods": ["tests/methods/test_contract.py", "tests/methods/test_declared_methods.py", "-k", "{name}"],
    "training": [f"tests/methods/test_{name}.py" for name in ("kinds_of_hooks", "losses_by_hand")],
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.USub: ast.UAdd},
}
NAMES = {"max": "min", "min": "max", "any": "all", "all": "any", "mean": "sum", "sum": "mean"}
#: Seconds after which a run of tests counts as hanging, which is a failure.
PATIENCE = 900


def change(node: ast.AST) -> ast.AST | None:
    """Return what stands in the place of a node; None where nothing can be changed, Pass where a statement goes."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in SWAPS:
        new.ops[0] = SWAPS[type(new.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(new, ast.BinOp | ast.BoolOp | ast.UnaryOp) and type(new.op) in SWAPS:
        new.op = SWAPS[type(new.op)]()  # type: ignore[assignment]
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool | int | float):
        new.value = not new.value if isinstance(new.value, bool) else new.value + 1
    elif isinstance(new, ast.If | ast.IfExp):
        new.test = ast.UnaryOp(ast.Not(), new.test)
    elif isinstance(new, ast.Name | ast.Attribute) and (name := getattr(new, "id", getattr(new, "attr", ""))) in NAMES:
        setattr(new, "id" if isinstance(new, ast.Name) else "attr", NAMES[name])
    else:
        targets = [new.target] if isinstance(new, ast.AugAssign) else getattr(new, "targets", [])
        called = isinstance(new, ast.Expr) and isinstance(new.value, ast.Call)
        goes = called or isinstance(new, ast.AugAssign | ast.Raise) or not all(isinstance(t, ast.Name) for t in targets)
        return ast.Pass() if goes else None
    return new


class Change(ast.NodeTransformer):
    """Numbers the places inside functions at which something can be changed, and changes one of them."""

    def __init__(self, number: int | None = None) -> None:
        self.number, self.inside, self.places = number, False, list[tuple[int, str]]()

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef):
            outside, self.inside = self.inside, True
            node.body = [self.visit(statement) for statement in node.body]  # type: ignore[misc]
            self.inside = outside
            return node
        possible = change(node) if self.inside else None
        if possible is not None:
            self.places.append((getattr(node, "lineno", 0), type(node).__name__))
            if len(self.places) - 1 == self.number:
                return ast.copy_location(possible, node)
        return self.generic_visit(node)


def selections(room: str, name: str) -> Iterator[list[str]]:
    """Arguments of pytest, one run after the other, for a change of the module ``name``."""
    files = sorted(file for folder in {room, "methods"} for file in (ROOT / "tests" / folder).rglob("test_*.py"))
    named = re.compile(rf'"{name}"|\b{room}\.{name}\b|\b{room} import .*\b{name}\b')
    naming = [
        str(file.relative_to(ROOT))
        for file in files
        if name in file.stem or named.search(file.read_text(encoding="utf-8"))
    ]
    yield [file for file in naming if file not in ROOMS[room]] or [f"tests/{room}"]
    if ROOMS[room]:
        yield [argument.format(name=name) for argument in ROOMS[room]]


def failing(folder: Path, arguments: list[str]) -> str | None:
    """The first test that fails in the copy, or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "timeout"
    said = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, flags=re.MULTILINE)
    return said[1] if said else None if done.returncode in (0, 5) else f"exit code {done.returncode}"


def killer(folder: Path, file: Path, source: str, room: str) -> str | None:
    """The test that fails with ``source`` in the place of the file; it must pass on the file as it is."""
    target = folder / file.relative_to(ROOT)
    for arguments in selections(room, file.stem):
        target.write_text(source, encoding="utf-8")
        test = failing(folder, arguments)
        target.write_bytes(file.read_bytes())
        if test is not None:
            if "::" in test and failing(folder, [test]) is not None:
                sys.exit(f"{test} fails without any change")
            return test
    return None


def main() -> int:
    """Sample faults, try them, print each and the score; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--file", default="*", help="one module of the room, without .py")
    parser.add_argument("--sample", type=int, default=20, help="number of faults")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    asked = parser.parse_args()
    faults = []
    for file in sorted((ROOT / "regft_core" / asked.room).rglob(f"{asked.file}.py")):
        places = Change()
        places.visit(ast.parse(file.read_text(encoding="utf-8")))
        faults += [(file, number, *place) for number, place in enumerate(places.places)]
    sample = random.Random(asked.seed).sample(faults, min(asked.sample, len(faults)))
    survivors = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        for file, number, line, what in sample:
            started = time.monotonic()
            tree = Change(number).visit(ast.parse(file.read_text(encoding="utf-8")))
            test = killer(folder, file, ast.unparse(ast.fix_missing_locations(tree)) + "\n", asked.room)
            survivors += test is None
            verdict = f"killed by {test}" if test else "SURVIVED"
            seconds = time.monotonic() - started
            print(f"{file.relative_to(ROOT)}:{line} {what}: {verdict} ({seconds:.0f} s)", flush=True)
    print(f"{len(sample) - survivors} of {len(sample)} killed; {len(faults)} places in all")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())

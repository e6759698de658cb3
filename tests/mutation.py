"""Mutation check: small changes of the code that some test must notice.

    python -m tests.mutation regft_core/statistics --sample 20 --seed 0 -- tests/statistics
    python -m tests.mutation regft_core/training/loop.py --sample 5 -- tests/training tests/methods/test_contract.py

Samples mutants of a file or folder, puts each in place of the file, runs the tests with ``-x`` and puts the file back.
A mutant that no test notices is printed with its line. The numbers are those of the sample: the same seed gives the
same mutants, so that two versions of the tests can be compared. Exits with 1 when a mutant survives.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
FUNCTIONS = {"max": "min", "min": "max", "any": "all", "all": "any", "mean": "sum", "sum": "mean"}


@dataclass(frozen=True)
class Mutant:
    """One change: the number of the node in the order of ``ast.walk``, and what is done with it."""

    file: Path
    line: int
    node: int
    change: str

    def source(self) -> str:
        """The whole file with the change in it."""
        tree = ast.parse(self.file.read_text(encoding="utf-8"))
        apply([*ast.walk(tree)][self.node], self.change)
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def changes(node: ast.AST) -> Iterator[str]:
    """What can be done with a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield "comparison"
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield "operator"
    elif isinstance(node, ast.BoolOp):
        yield "and/or"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "number"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth"
    elif isinstance(node, ast.If | ast.IfExp):
        yield "condition"
    elif isinstance(node, ast.Call) and name_of(node.func) in FUNCTIONS:
        yield "function"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "dropped call"


def name_of(function: ast.expr) -> str:
    """The last name of what is called."""
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def apply(node: ast.AST, change: str) -> None:
    """Make a change in a tree."""
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp):
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), copy.deepcopy(node.test))
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            node.func.id = FUNCTIONS[node.func.id]
        elif isinstance(node.func, ast.Attribute):
            node.func.attr = FUNCTIONS[node.func.attr]
    elif isinstance(node, ast.Expr):
        node.value = ast.Constant(None)
    else:
        raise ValueError(f"{change} of {ast.dump(node)}")


def mutants(places: list[Path]) -> list[Mutant]:
    """All mutants of files and folders; annotations, defaults of pydantic fields and texts are left alone."""
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    found = []
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for statement in function.body
            for node in ast.walk(statement)
        }
        found += [
            Mutant(file, getattr(node, "lineno", 0), number, change)
            for number, node in enumerate(ast.walk(tree))
            if id(node) in inside
            for change in changes(node)
        ]
    return found


def noticed(mutant: Mutant, tests: list[str]) -> bool:
    """Whether some test fails with the mutant in place; the file is put back whatever happens."""
    before = mutant.file.read_bytes()
    try:
        mutant.file.write_text(mutant.source(), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "300", *tests]
        return subprocess.run(command, capture_output=True).returncode != 0
    finally:
        mutant.file.write_bytes(before)


def main() -> int:
    """Sample, try, print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path, help="files and folders of code")
    parser.add_argument("--sample", type=int, default=20, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--list", action="store_true", help="print the sample, run nothing")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, tests = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    every = mutants(given.places)
    sample = random.Random(given.seed).sample(every, min(given.sample, len(every)))
    survivors = 0
    for number, mutant in enumerate(sample, 1):
        started = time.monotonic()
        killed = None if given.list else noticed(mutant, tests)
        survivors += killed is False
        word = {True: "killed", False: "SURVIVED", None: ""}[killed]
        seconds = time.monotonic() - started
        print(f"{number:3} {word:8} {mutant.file}:{mutant.line} {mutant.change} ({seconds:.0f} s)", flush=True)
    print(f"{len(sample) - survivors} of {len(sample)} killed; {len(every)} mutants in all")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())

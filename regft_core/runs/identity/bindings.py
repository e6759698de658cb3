"""Which names the statements of a block bind, and what its imports stand for. Nothing is imported to find out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass
class Bound:
    """What a block binds.

    Attributes:
        names: those that statements other than imports bind.
        imports: local name -> dotted names that imports give it, in their order; ``*`` for ``import *``.
        loaded: dotted names of everything that is imported.
    """

    names: set[str] = field(default_factory=set)
    imports: dict[str, list[str]] = field(default_factory=dict)
    loaded: list[str] = field(default_factory=list)


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``, of ``a.b.c(...)`` and of ``c``; empty for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.Import | ast.ImportFrom, package: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(local name, what it stands for, what is loaded) of everything that an import names.

    ``from a import b`` loads ``a.b``, for ``b`` may be a module. ``package``: where relative imports start.
    """
    for alias in node.names:
        if isinstance(node, ast.Import):
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name, alias.name) if alias.asname else (top, top, alias.name)
            continue
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        if alias.name == "*":
            yield "*", base, base
        elif base != "__future__":
            yield alias.asname or alias.name, f"{base}.{alias.name}", f"{base}.{alias.name}"


def running(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that act when the block runs (as part of a module that is imported).

    Docstrings and ``pass`` do not; of ``if TYPE_CHECKING`` and ``if __name__ == "__main__"`` the ``else`` does.
    """
    for statement in statements:
        if isinstance(statement, ast.If) and never_runs(statement.test):
            yield from running(statement.orelse)
        elif not isinstance(statement, ast.Pass) and not (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            yield statement


def never_runs(test: ast.expr) -> bool:
    """Whether a condition is ``TYPE_CHECKING`` or ``__name__ == "__main__"``."""
    if isinstance(test, ast.Compare):
        return last_name(test.left) == "__name__" and isinstance(test.ops[0], ast.Eq)
    return last_name(test) == "TYPE_CHECKING"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """``ast.walk`` without contexts and in any order; half the time."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                waiting += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and name != "ctx":
                waiting.append(value)


def bound_in(statements: Iterable[ast.stmt], package: Sequence[str], walrus: bool = True) -> Bound:
    """What a block binds in its own scope: not what is inside functions, classes and comprehensions.

    ``walrus``: whether there may be ``:=`` in it; without, only targets are looked at.
    """
    found, elsewhere = Bound(), set[str]()
    waiting: list[ast.AST] = list(running(statements))
    waiting.reverse()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            for local, meant, loaded in imported(node, package):
                found.imports.setdefault(local, []).append(meant)
                found.loaded.append(loaded)
            continue
        if isinstance(node, _DEFINITIONS):
            found.names.add(node.name)
            continue
        if isinstance(node, COMPREHENSIONS):  # of what it binds only `:=` is bound outside of it
            found.names.update(last_name(one.target) for one in walk(node) if isinstance(one, ast.NamedExpr))
            continue
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                found.names.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            elsewhere.update(node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.names.add(node.rest)
        if not isinstance(node, ast.Lambda):
            waiting += [one for one in _inside(node)[::-1] if walrus or not _only_read(one)]
    found.names -= elsewhere
    found.imports = {name: meant for name, meant in found.imports.items() if name not in elsewhere}
    return found


def _inside(node: ast.AST) -> list[ast.AST]:
    """Parts of a node that run, in their order."""
    if isinstance(node, ast.If) and never_runs(node.test):
        return list(node.orelse)
    values = (getattr(node, name, None) for name in node._fields if name != "ctx")
    parts = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [one for one in parts if isinstance(one, ast.AST)]


def _only_read(node: ast.AST) -> bool:
    return isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)

"""Which modules a Python file imports, read off its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regft_core.runs.syntax_rules import is_type_checking


def imported_names(tree: ast.Module, module: str, is_package: bool) -> set[str]:
    """Return the dotted names that a module imports anywhere, also inside functions.

    ``from a import b`` gives ``a`` and ``a.b``, since ``b`` may be a module; relative imports
    are resolved against ``module``; names under ``TYPE_CHECKING`` are left out. Imports whose
    name is computed are invisible here.
    """
    package = module.split(".") if is_package else module.split(".")[:-1]
    names: set[str] = set()
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(package, node.level, node.module or "")
            names.add(".".join(base))
            names.update(".".join([*base, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and (name := _dynamic(node)):
            level = len(name) - len(name.lstrip("."))
            names.add(".".join(_absolute(package, level, name[level:])))
    return names - {""}


def _absolute(package: list[str], level: int, name: str) -> list[str]:
    parts = name.split(".") if name else []
    return package[: len(package) - level + 1] + parts if level else parts


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those of branches that only type checkers read."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and is_type_checking(node):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _dynamic(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    if name in ("import_module", "__import__") and call.args and isinstance(call.args[0], ast.Constant):
        value = call.args[0].value
        return value if isinstance(value, str) else None
    return None

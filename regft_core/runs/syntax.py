"""What a Python file means, without how it is written: hashes of syntax trees, and imports."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

#: A release must not make every finished run stale: versions are recorded in manifests instead.
_IGNORED_NAMES = frozenset({"__version__"})


def _is_without_effect(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):  # docstrings, and strings used as comments
        return isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id in _IGNORED_NAMES for target in statement.targets)
    return False


def _describe(node: object) -> Iterator[str]:
    # Not ast.dump: its text changes between Python versions (new fields, empty lists), and
    # machines that share a run store need not have the same one.
    if isinstance(node, ast.Constant):
        yield f"{type(node.value).__name__}:{node.value!r}"
    elif isinstance(node, ast.AST):
        yield f"{type(node).__name__}("
        for field in node._fields:
            value = getattr(node, field, None)
            if value is None or value == [] or field in ("type_comment", "kind"):
                continue
            yield f"{field}="
            yield from _describe(value)
            yield ","
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            if not (isinstance(item, ast.stmt) and _is_without_effect(item)):
                yield from _describe(item)
                yield ","
        yield "]"
    else:
        yield repr(node)


def code_sha256(tree: ast.Module) -> str:
    """Hash the meaning of a module.

    Comments, docstrings, blank lines and formatting leave it as it is; annotations count,
    because pydantic models and dataclasses are made of them.
    """
    digest = hashlib.sha256()
    for text in _describe(tree.body):
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.If) and _is_type_checking(node.test) and child in node.body:
            continue  # never runs
        yield from _executed(child)


def _dynamic(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    if name in ("import_module", "__import__") and call.args and isinstance(call.args[0], ast.Constant):
        value = call.args[0].value
        return value if isinstance(value, str) else None
    return None


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
            base = node.module.split(".") if node.module else []
            if node.level:
                base = package[: len(package) - node.level + 1] + base
            names.add(".".join(base))
            names.update(".".join([*base, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and (name := _dynamic(node)):
            names.add(name)
    return names - {""}


def parse(path: Path) -> ast.Module:
    """Parse a Python file; raises ``SyntaxError``, ``OSError`` or ``ValueError`` (null bytes)."""
    return ast.parse(path.read_bytes(), filename=str(path))

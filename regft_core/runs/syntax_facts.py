"""What must be known of a whole module before a single statement of it can be judged."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_LOG_METHODS = frozenset({"debug", "info", "warning", "warn", "error", "critical", "exception", "log"})
#: Calls that neither change anything nor use up an iterator.
_PURE = frozenset(
    {
        *("len", "str", "repr", "int", "float", "bool", "round", "abs", "type", "format", "item", "tolist"),
        *("keys", "values", "items", "lower", "upper", "strip", "removeprefix", "removesuffix", "total_seconds"),
    }
)


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``, of ``a.b.c(...)`` and of ``c``; empty for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class Facts:
    """Names of a module that have a meaning beyond the statement they stand in.

    Attributes:
        mentioned: every name that occurs anywhere, also in annotations and messages.
        bound: names that some statement binds.
        loggers: module-level names bound once, to ``logging.getLogger(...)``.
        modules: names that stand for ``logging`` and ``warnings`` of the standard library.
        caught: exceptions that the module itself catches by name and looks at.
    """

    mentioned: frozenset[str]
    bound: frozenset[str]
    loggers: frozenset[str]
    modules: frozenset[str]
    caught: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module) -> Facts:
        """Collect them in one walk."""
        mentioned, caught = set(), set()
        bound: Counter[str] = Counter()
        modules = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                mentioned.add(node.id)
                if not isinstance(node.ctx, ast.Load):
                    bound[node.id] += 1
            elif isinstance(node, ast.arg):
                bound[node.arg] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                bound[node.name] += 1
            elif isinstance(node, ast.Import | ast.ImportFrom):
                bound.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
                if isinstance(node, ast.Import):
                    plain = {alias.name for alias in node.names if alias.asname is None}
                    modules |= plain & {"logging", "warnings"}
            elif isinstance(node, ast.ExceptHandler) and node.name is not None:
                bound[node.name] += 1
                types = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type] if node.type else []
                caught |= {last_name(kind) for kind in types}
        modules = {name for name in modules if bound[name] == 1}
        loggers = {
            statement.targets[0].id
            for statement in tree.body
            if isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Name)
            and bound[statement.targets[0].id] == 1
            and isinstance(statement.value, ast.Call)
            and ast.unparse(statement.value.func) == "logging.getLogger"
            and "logging" in modules
        }
        return cls(
            frozenset(mentioned), frozenset(bound), frozenset(loggers), frozenset(modules), frozenset(caught - {""})
        )

    def only_talks(self, call: ast.Call) -> bool:
        """Whether a call, standing alone, is ``print``, a logger's method or ``warnings.warn``."""
        function = call.func
        if isinstance(function, ast.Name):
            file = next((keyword.value for keyword in call.keywords if keyword.arg == "file"), None)
            elsewhere = file is not None and last_name(file) not in ("stderr", "stdout")
            return function.id == "print" and "print" not in self.bound and not elsewhere
        if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
            return False
        receiver = function.value.id
        if receiver == "warnings":
            return receiver in self.modules and function.attr == "warn"
        return function.attr in _LOG_METHODS and (receiver in self.loggers or receiver in self.modules)

    def effects(self, call: ast.Call) -> Iterator[ast.expr]:
        """Arguments that may do more than say something: they draw numbers, use up iterators, bind names."""
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            if any(_acts(node) for node in ast.walk(argument)):
                yield argument


def _acts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node) not in _PURE
    loops = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Starred
    return isinstance(node, loops | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)

"""What in a module changes no number: the tables and questions behind ``syntax``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from regft_core.runs.syntax_facts import last_name

#: Questions that an entry (regulariser, encoder family, optimiser, metric) answers before or after training.
DECLARATIONS = frozenset(
    {
        *("check_task", "check_options", "check_model", "refused_precisions", "refused_architectures", "degraded"),
        *("cost", "fit_cost", "search_cost", "search_epochs", "smallest_effect", "variant", "declared"),
    }
)
#: Hooks that act after training, for evaluations only.
VIEWS = frozenset({"token_confidence", "input_views"})
#: Class attributes of an entry that only describe it.
DECLARED_ATTRIBUTES = frozenset({"paper", "touches", "off", "refused_architectures", "padding_invariant", "controls"})
#: The argument of ``Declares`` that only describes the method.
SAYS = "says"
DECLARED = DECLARATIONS | VIEWS | DECLARED_ATTRIBUTES | {SAYS}
#: A release must not make every finished run stale: versions are recorded with the result.
IGNORED_NAMES = frozenset({"__version__"})
#: Arguments of pydantic's ``Field`` that are text for people.
FIELD_TEXTS = frozenset({"description", "title"})
#: Their arguments are values for whoever called, not messages.
VALUE_EXCEPTIONS = frozenset({"StopIteration", "StopAsyncIteration", "SystemExit"})
#: Decorators that do not read annotations; below another one (triton's ``jit``, ``register``) they count.
_PLAIN_DECORATORS = frozenset(
    {
        *("classmethod", "staticmethod", "property", "setter", "getter", "deleter", "cached_property", "wraps"),
        *("abstractmethod", "override", "final", "overload", "cache", "lru_cache", "total_ordering", "dataclass"),
        *("contextmanager", "asynccontextmanager", "no_grad", "enable_grad", "inference_mode", "runtime_checkable"),
        *("model_validator", "field_validator", "unique"),
    }
)
#: Annotations that change what a class-level assignment is.
_ANNOTATION_KINDS = frozenset({"ClassVar", "InitVar", "KW_ONLY"})
#: Fields of syntax trees that say nothing, or differ between versions of Python.
SILENT_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_params"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_type_checking(node: ast.AST) -> bool:
    """Whether a statement is ``if TYPE_CHECKING:``, whose body never runs."""
    return isinstance(node, ast.If) and last_name(node.test) == "TYPE_CHECKING"


def running(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that act: without imports from ``__future__``, and of ``if TYPE_CHECKING`` what else runs."""
    for statement in statements:
        if isinstance(statement, ast.If) and is_type_checking(statement):
            yield from running(statement.orelse)
        elif not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            yield statement


def bindings(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """(local name, origin) of everything that an import statement binds."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            origin = f"{'.' * node.level}{node.module or ''}:{alias.name}"
            # Every `import *` is kept: what it binds is not known here.
            yield (alias.asname or alias.name, origin) if alias.name != "*" else (f"* {origin}", origin)
        else:
            # `import a.b` binds a, and so does `import a.c`: both stay, as both must be loaded.
            yield alias.asname or alias.name, alias.name


def assigned(statement: ast.stmt) -> list[str]:
    """Names that a statement gives a value to, one by one."""
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
        return [statement.target.id]
    return []


def may_read_annotations(decorators: Sequence[ast.expr]) -> bool:
    """Whether one of the decorators is not known to leave annotations alone."""
    return any(last_name(decorator) not in _PLAIN_DECORATORS for decorator in decorators)


def annotation_kind(annotation: ast.expr) -> str:
    """``ClassVar``, ``InitVar``, ``KW_ONLY``, or nothing for all other annotations."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        name = annotation.value.split("[")[0].split(".")[-1].strip()
    else:
        name = last_name(annotation.value if isinstance(annotation, ast.Subscript) else annotation)
    return name if name in _ANNOTATION_KINDS else ""

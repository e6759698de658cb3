"""What the code of a module means: a plain text of each statement at its top, and what that statement names.

The text is the syntax tree without comments, docstrings, layout and annotations (but for what acts at run time:
``ClassVar``, ``Annotated``, annotations below decorators that may read them). Imports leave no text either: where
the name that an import binds is used stands a mark, and ``Piece.names`` says what is meant. So neither the place of
a definition nor the way to import it is part of the text.

What a method says about itself (``SAID``) is set apart: it counts only for code that asks for it.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from regft_core.runs.identity.bindings import Bound, bound_in, imported, last_name, never_runs, running, walk

#: Parts of a method (of a class with a ``name``) that change no result: members, and the argument ``says``.
SAID = frozenset(
    {"says", "off", "controls", "sources", "check_task", "check_options", "token_confidence", "input_views"}
)
#: Arguments of pydantic's ``Field`` that are text for people.
_FIELD_TEXTS = frozenset({"description", "title"})
#: Annotations that change what a class-level assignment is.
_FIELD_KINDS = frozenset({"ClassVar", "InitVar", "KW_ONLY"})
#: Decorators that neither read annotations nor do anything but wrap.
_PLAIN_DECORATORS = frozenset(
    {
        *("classmethod", "staticmethod", "property", "setter", "cached_property", "abstractmethod", "override"),
        *("cache", "lru_cache", "total_ordering", "dataclass", "contextmanager", "runtime_checkable", "wraps"),
        *("no_grad", "enable_grad", "inference_mode", "model_validator", "field_validator"),
    }
)
#: Functions of other packages that do nothing but return a value.
_PURE = frozenset({"compile", "getLogger", "fromkeys", "items", "keys", "values", "split", "join", "time_ns"})
#: Fields of syntax trees that say nothing, or differ between versions of Python.
_SILENT_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_params", "annotation", "returns"})
_DOTTED = re.compile(r"\w+(\.\w+)+\.?")
#: Stands in a text for what ``Piece.names`` says.
_MARK = "\0"


@dataclass(frozen=True)
class Piece:
    """One statement at the top of a module.

    Attributes:
        text: equal texts with equal names mean the same.
        names: dotted name of what each mark in the text stands for.
        asks: members of ``SAID`` that it reads of whatever object.
        types: dotted names in annotations, but for what only type checkers import: objects of these classes are used
            here, made here or elsewhere.
        said: members of ``SAID`` that it declares, by name.
        acts: whether it may do more than bind names when the module is imported.
    """

    text: str
    names: tuple[str, ...]
    asks: tuple[str, ...]
    types: tuple[str, ...] = field(default=(), repr=False)
    said: Mapping[str, Piece] = field(default_factory=dict)
    acts: bool = False


@dataclass(frozen=True)
class Meaning:
    """What a module means.

    Attributes:
        pieces: the statements at its top but imports.
        bound: each name at its top -> the indices of pieces and the dotted names of imports that bind it.
        typed: names that only type checkers import -> what they stand for.
        loaded: dotted names of all that it imports when it is loaded itself.
        unused: those of them that the module does not mention: for others to take, or for their effect.
        sha256: of all of it.
    """

    pieces: tuple[Piece, ...]
    bound: Mapping[str, tuple[int | str, ...]]
    typed: Mapping[str, str]
    loaded: tuple[str, ...]
    unused: tuple[str, ...]
    sha256: str


def meaning(tree: ast.Module, module: str, is_package: bool = False) -> Meaning:
    """Return what a module means; ``module``: its dotted name, from which relative imports go."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    nodes = [node for node in walk(tree) if isinstance(node, ast.Name | ast.NamedExpr)]
    mentioned = {node.id for node in nodes if isinstance(node, ast.Name)}
    walrus = any(isinstance(node, ast.NamedExpr) for node in nodes)
    bound: dict[str, list[int | str]] = {}
    loaded, unused, kept = list[str](), list[str](), list[ast.stmt]()
    for statement in running(tree.body):
        found = bound_in([statement], package, walrus)
        loaded += found.loaded
        for name, origins in found.imports.items():
            bound.setdefault(name, []).extend(origins)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            unused += [whole for local, _, whole in imported(statement, package) if local not in mentioned]
            continue
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            continue
        for name in sorted(found.names):
            bound.setdefault(name, []).append(len(kept))
        kept.append(statement)
    typed = {
        local: meant
        for statement in tree.body
        if isinstance(statement, ast.If) and never_runs(statement.test)
        for one in statement.body
        if isinstance(one, ast.Import | ast.ImportFrom)
        for local, meant, _ in imported(one, package)
    }
    writer = _Writer(module, package, frozenset(bound), frozenset(mentioned), walrus)
    pieces = tuple(writer.piece(statement) for statement in kept)
    known = {name: tuple(dict.fromkeys(found)) for name, found in bound.items()}
    whole = sha256(repr((pieces, sorted((name, repr(found)) for name, found in known.items()), loaded)))
    return Meaning(pieces, known, typed, tuple(loaded), tuple(unused), whole)


def sha256(text: str) -> str:
    """The hash of a text, also of one with lone surrogates, which a string constant may have."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Writer:
    """Writes statements as text; a name that the module binds becomes a mark."""

    def __init__(
        self, module: str, package: Sequence[str], bound: frozenset[str], mentioned: frozenset[str], walrus: bool
    ) -> None:
        self.module, self.package = module, package
        self.bound, self.mentioned, self.walrus = bound, mentioned, walrus
        self.scopes: list[Bound] = []
        self.in_class = False  # directly in the body of a class
        self.is_entry = False  # in a class that declares a name, by which it is looked up
        self.annotations = False  # below a decorator that may read annotations
        self.names: list[str] = []
        self.asks: set[str] = set()
        self.types: list[str] = []
        self.said: dict[str, Piece] = {}

    def piece(self, statement: ast.stmt) -> Piece:
        """One statement at the top of the module."""
        self.said = {}
        return replace(self._apart(lambda: self.text(statement)), said=self.said, acts=_acts(statement))

    def _apart(self, write: Callable[[], str]) -> Piece:
        outer, self.names, self.asks, self.types = (self.names, self.asks, self.types), [], set(), []
        text = write()
        found = Piece(text, tuple(self.names), tuple(sorted(self.asks)), tuple(dict.fromkeys(self.types)))
        self.names, self.asks, self.types = outer
        return found

    @contextmanager
    def _inside(self, **state: Any) -> Iterator[None]:
        before = {name: getattr(self, name) for name in state}
        vars(self).update(state)
        yield
        vars(self).update(before)

    def text(self, node: Any) -> str:
        """Any part of a tree, as text."""
        # Not ast.dump: its text changes between Python versions (new fields, empty lists), and
        # machines that share a run store need not have the same one.
        if isinstance(node, ast.Name | ast.Attribute) and (meant := self._meant(node)):
            self._ask(node)
            self.names += meant
            return _MARK * len(meant)
        if isinstance(node, list):
            return "".join(f"{text}," for item in node if (text := self.text(item)))
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if not isinstance(node, ast.AST):
            return repr(node)
        write = getattr(self, f"write_{type(node).__name__}", None)
        return str(write(node)) if write else self._plain(node)

    def _plain(self, node: ast.AST) -> str:
        parts = []
        for name in node._fields:
            value = getattr(node, name, None)
            if name in _SILENT_FIELDS or value is None or value == []:
                continue
            if isinstance(value, list) and isinstance(value[0], ast.stmt):
                value = list(running(value))
            if text := self.text(value):
                parts.append(f"{name}=[{text}]" if isinstance(value, list) else f"{name}={text}")
        return f"{type(node).__name__}({','.join(parts)})"

    # ------------------------------------------------------------------------------- names

    def _meant(self, node: ast.expr) -> list[str]:
        """Dotted names of what ``a.b.c`` stands for, if a module-level name or an import is ``a``."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        origins = self._origins(node.id) if isinstance(node, ast.Name) else []
        return [".".join([origin, *attributes]) for origin in origins]

    def _origins(self, name: str) -> list[str]:
        for scope in reversed(self.scopes):
            if name in scope.imports:
                return scope.imports[name]
            if name in scope.names:
                return []
        return [f"{self.module}.{name}"] if name in self.bound else []

    def _constant(self, value: Any) -> str:
        if isinstance(value, str) and _DOTTED.fullmatch(value) and value.split(".")[0] == self.module.split(".")[0]:
            return "module"  # one of this package, wherever it lies; what is found there counts by itself
        return f"{type(value).__name__}:{value!r}"

    def _ask(self, node: ast.expr) -> None:
        if isinstance(node, ast.Attribute):
            if node.attr in SAID and last_name(node.value) != "options":  # those are validated options
                self.asks.add(node.attr)
            self._ask(node.value)

    def write_Attribute(self, node: ast.Attribute) -> str:
        self._ask(node)
        return self._plain(node)

    # -------------------------------------------------------------------------- statements

    def _import(self, node: ast.Import | ast.ImportFrom) -> str:
        """Nothing, unless it is there for its effect, or binds a name of a class."""
        text = ""
        for local, _, loaded in imported(node, self.package):
            if self.in_class or local not in self.mentioned:
                self.names.append(loaded)
                text += f"Import({local if self.in_class else ''}={_MARK})"
        return text

    write_Import = write_ImportFrom = _import

    def write_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        with self._inside(annotations=_may_read_annotations(node), in_class=False):
            head = f"{type(node).__name__}({node.name},{self.text(node.decorator_list)}{self.text(node.args)}"
            if self.annotations:
                head += f"->{self.text(node.returns)}"
            self._types(node.returns)
        return f"{head}[{self._body(node, node.body)}])"

    write_AsyncFunctionDef = write_FunctionDef

    def write_Lambda(self, node: ast.Lambda) -> str:
        return f"Lambda({self.text(node.args)}{self._body(node, [ast.Return(node.body)])})"

    def _body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, body: Sequence[ast.stmt]) -> str:
        scope = bound_in(body, self.package, self.walrus)
        given = node.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        scope.names.update(one.arg for one in named if one is not None)
        with self._inside(scopes=[*self.scopes, scope], in_class=False, is_entry=False, annotations=False):
            return self.text(list(running(body)))

    def write_arg(self, node: ast.arg) -> str:
        if self.annotations and node.annotation:
            return f"{node.arg}:{self.text(node.annotation)}"
        self._types(node.annotation)
        return node.arg

    def _types(self, annotation: ast.expr | None) -> None:
        """Note what an annotation names: an object of such a class may come from where nobody here looks."""
        for node in walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Name | ast.Attribute):
                self.types += self._meant(node)

    def _scoped(self, node: Any) -> str:
        targets = {name.id for one in node.generators for name in ast.walk(one.target) if isinstance(name, ast.Name)}
        first = self.text(node.generators[0].iter)  # outside of its scope
        with self._inside(scopes=[*self.scopes, Bound(targets)]):
            return f"{first}{self._plain(node)}"

    write_ListComp = write_SetComp = write_DictComp = write_GeneratorExp = _scoped

    def write_ClassDef(self, node: ast.ClassDef) -> str:
        head = "".join(self.text(part) + ";" for part in (node.decorator_list, node.bases, node.keywords))
        is_entry = not self.scopes and any("name" in _assigned(statement) for statement in node.body)
        with self._inside(in_class=True, is_entry=is_entry, annotations=_may_read_annotations(node)):
            members = [statement for statement in running(node.body) if not self._says(statement)]
            return f"ClassDef({node.name},{head}[{self.text(members)}])"

    def _says(self, statement: ast.stmt) -> bool:
        """Whether a member of an entry counts only for who asks for it; it is set apart then."""
        names = [statement.name] if isinstance(statement, ast.FunctionDef) else _assigned(statement)
        if not self.is_entry or len(names) != 1 or names[0] not in SAID:
            return False
        self.said[names[0]] = self._apart(lambda: self.text(statement))
        return True

    def write_keyword(self, node: ast.keyword) -> str:
        if node.arg == "says":
            self.said["says"] = self._apart(lambda: self.text(node.value))
            return ""
        return self._plain(node)

    def write_Call(self, node: ast.Call) -> str:
        name = last_name(node)
        if name in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
            path = str(node.args[0].value)
            level = len(path) - len(path.lstrip("."))
            above = self.package[: len(self.package) - level + 1] if level else []
            self.names.append(".".join([*above, path[level:]]))
            return f"Module({_MARK})"
        if name == "getattr" and len(node.args) > 1 and getattr(node.args[1], "value", "") in SAID:
            self.asks.add(getattr(node.args[1], "value", ""))
        if name == "Field":
            keywords = [keyword for keyword in node.keywords if keyword.arg not in _FIELD_TEXTS]
            return self._plain(ast.Call(node.func, node.args, keywords))
        return self._plain(node)

    def write_AnnAssign(self, node: ast.AnnAssign) -> str:
        value = "" if node.value is None else self.text(node.value)
        self._types(node.annotation)
        if not self.in_class:
            return f"Assign(targets=[{self.text(node.target)},],value={value})" if value else ""
        kept = self.text(node.annotation) if self.annotations else self._acting(node.annotation)
        return f"Field({self.text(node.target)}:{kept}={value})"

    def _acting(self, annotation: ast.expr) -> str:
        """What acts at run time of a field's annotation."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        text = ""
        for node in ast.walk(annotation):
            if isinstance(node, ast.Subscript) and last_name(node.value) == "Annotated":
                text += self.text(getattr(node.slice, "elts", [])[1:])
            elif isinstance(node, ast.Name | ast.Attribute) and last_name(node) in _FIELD_KINDS:
                text += last_name(node)
        return text


def _assigned(statement: ast.stmt) -> list[str]:
    """Names that a member of a class gives a value to, but for fields of a model or dataclass."""
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
        return [statement.target.id] if "ClassVar" in ast.dump(statement.annotation) else []
    return []


def _may_read_annotations(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(last_name(decorator) not in _PLAIN_DECORATORS for decorator in node.decorator_list)


def _acts(statement: ast.AST) -> bool:
    """Whether a statement at the top of a module may do more than bind names. When in doubt it does."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return _may_read_annotations(statement)
    if isinstance(statement, ast.ClassDef):
        return _may_read_annotations(statement) or bool(statement.keywords)
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return not all(isinstance(one, ast.Name | ast.Tuple) for one in targets) or _calls(statement)
    if isinstance(statement, ast.If | ast.Try | ast.ExceptHandler):
        return any(_acts(one) for one in ast.iter_child_nodes(statement))
    if isinstance(statement, ast.expr):
        return _calls(statement)
    return not isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)


def _calls(node: ast.AST) -> bool:
    """Whether a call in here may do more than make a value."""
    return any(isinstance(one, ast.Call) and not _is_pure(one) for one in ast.walk(node))


def _is_pure(call: ast.Call) -> bool:
    """Whether a call only makes a value: of a class, or by a function that is known to."""
    name = last_name(call)
    return name in _PURE or name.lstrip("_")[:1].isupper() or (hasattr(builtins, name) and name not in ("exec", "eval"))

"""What a module means for the numbers that it computes, as a hash of its syntax tree.

Everything counts unless it is known to change no number: comments, docstrings, formatting,
annotations, what is said (messages of errors, logs, ``print``, descriptions of options), and
what a method declares about itself before training. Where a construct of that kind could act
after all (a log line whose arguments draw random numbers, a decorator that reads
annotations), it counts.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regft_core.runs.syntax_facts import Facts, last_name
from regft_core.runs.syntax_rules import (
    DECLARATIONS,
    DECLARED,
    DECLARED_ATTRIBUTES,
    FIELD_TEXTS,
    IGNORED_NAMES,
    SAYS,
    SILENT_FIELDS,
    VALUE_EXCEPTIONS,
    VIEWS,
    Function,
    annotation_kind,
    assigned,
    bindings,
    may_read_annotations,
    running,
)


@dataclass(frozen=True)
class Declared:
    """What all classes of a module declare under one name; ``asks`` as in ``Meaning``."""

    sha256: str
    asks: frozenset[str]


@dataclass(frozen=True)
class Meaning:
    """A module's hash, and what its hash leaves out although another module may need it.

    Attributes:
        sha256: what the module computes.
        hidden: imports used in annotations and messages only, as local name -> origin. They
            count for another module that takes the name from here.
        declared: parts of entries that count only if some module asks for them.
        asks: names of ``declared`` parts that this module reads of whatever object.
    """

    sha256: str
    hidden: Mapping[str, str]
    declared: Mapping[str, Declared]
    asks: frozenset[str]


@dataclass
class _Imports:
    """A run of import statements: local name -> origin; their order says nothing."""

    bound: dict[str, str]
    at_module_level: bool

    def text(self, counts: Callable[[str], bool]) -> str:
        kept = sorted((local, origin) for local, origin in self.bound.items() if counts(local))
        return f"Import{kept!r}," if kept else ""


@dataclass
class _Scope:
    """Where statements stand: in a class, a function or (neither) the module."""

    in_class: bool = False
    in_function: bool = False
    is_entry: bool = False  # a class that declares a name, by which it is looked up
    annotations: bool = False  # whether a decorator may read annotations


@dataclass
class _Part:
    """Text written so far, the names used in it, and the declarations that it reads."""

    out: list[str | _Imports] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    asks: set[str] = field(default_factory=set)


@dataclass
class _Writer:
    """Writes a tree as text; equal texts mean equal meanings."""

    facts: Facts
    part: _Part = field(default_factory=_Part)
    declared: dict[str, _Part] = field(default_factory=dict)
    scope: _Scope = field(default_factory=_Scope)

    # -------------------------------------------------------------------------- statements

    def block(self, statements: Sequence[ast.stmt], name: str = "") -> None:
        """Write a list of statements, or nothing when none of them counts."""
        start = len(self.part.out)
        self.part.out.append(f"{name}=[")
        imports: dict[str, str] = {}
        for statement in running(statements):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                imports.update(bindings(statement))
                continue
            if self._is_silent(statement):
                continue
            name_declared = self._declares(statement)
            if name_declared:
                # Written aside: it counts for those who ask for it.
                counted, self.part = self.part, self.declared.setdefault(name_declared, _Part())
                self._statement(statement)
                self.part = counted
                continue
            self._flush(imports)
            self._statement(statement)
        self._flush(imports)
        if name and len(self.part.out) == start + 1:
            del self.part.out[start:]
        else:
            self.part.out.append("],")

    def _flush(self, imports: dict[str, str]) -> None:
        if imports:
            self.part.out.append(_Imports(dict(imports), not self._is_nested()))
            imports.clear()

    def _is_silent(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Pass):
            return True
        if isinstance(statement, ast.Expr):  # docstrings, and strings used as comments
            return isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.Assign):
            silent = IGNORED_NAMES if self._is_nested() else IGNORED_NAMES | self.facts.loggers
            return all(isinstance(target, ast.Name) and target.id in silent for target in statement.targets)
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            return not self.scope.in_class or annotation_kind(statement.annotation) == "ClassVar"
        return isinstance(statement, Function) and "overload" in map(last_name, statement.decorator_list)

    def _is_nested(self) -> bool:
        return self.scope.in_class or self.scope.in_function

    def _declares(self, statement: ast.stmt) -> str:
        """The name under which an entry's class declares something here, or nothing."""
        if not self.scope.is_entry:
            return ""
        if isinstance(statement, Function):
            asked_of_class = "classmethod" in map(last_name, statement.decorator_list)
            return statement.name if statement.name in (DECLARATIONS | VIEWS if asked_of_class else VIEWS) else ""
        is_field = isinstance(statement, ast.AnnAssign) and annotation_kind(statement.annotation) != "ClassVar"
        names = assigned(statement)
        return names[0] if len(names) == 1 and names[0] in DECLARED_ATTRIBUTES and not is_field else ""

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and self.facts.only_talks(node.value):
            for effect in self.facts.effects(node.value):
                self._named("effect", effect)
        elif isinstance(node, Function):
            self._function(node)
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, ast.AnnAssign):
            self._annotated(node)
        elif isinstance(node, ast.Raise):
            self.part.out.append("Raise(")
            self._named("exc", self._raised(node.exc))
            self.part.out.append("),")
        elif isinstance(node, ast.Assert):
            self.part.out.append("Assert(")
            self._named("test", node.test)
            self.part.out.append("),")
        else:
            self.node(node)
            self.part.out.append(",")

    def _raised(self, raised: ast.expr | None) -> ast.expr | None:
        """The class, without the message: ``raise X`` and ``raise X("...")`` mean the same."""
        if not isinstance(raised, ast.Call):
            return raised
        name = last_name(raised.func)
        is_class = name.lstrip("_")[:1].isupper()
        says = is_class and name not in VALUE_EXCEPTIONS and name not in self.facts.caught
        return raised.func if says else raised

    def _inside(self, scope: _Scope, body: Sequence[ast.stmt]) -> None:
        outer, self.scope = self.scope, scope
        self.block(body, "body")
        self.scope = outer

    def _function(self, node: Function) -> None:
        outer = self.scope
        annotations = may_read_annotations(node.decorator_list)
        self.part.out.append(f"{type(node).__name__}(name={node.name},")
        self._named("decorators", node.decorator_list)
        self.scope = _Scope(annotations=annotations)
        self._named("args", node.args)
        if annotations:
            self._named("returns", node.returns)
        self.scope = outer
        self._inside(_Scope(in_function=True), node.body)
        self.part.out.append("),")

    def _class(self, node: ast.ClassDef) -> None:
        self.part.out.append(f"ClassDef(name={node.name},")
        self._named("decorators", node.decorator_list)
        self._named("bases", node.bases)
        self._named("keywords", node.keywords)
        names = {name for statement in node.body for name in assigned(statement)}
        annotations = may_read_annotations(node.decorator_list)
        self._inside(_Scope(in_class=True, is_entry="name" in names, annotations=annotations), node.body)
        self.part.out.append("),")

    def _annotated(self, node: ast.AnnAssign) -> None:
        kind = annotation_kind(node.annotation)
        if self.scope.in_class and kind != "ClassVar":
            self.part.out.append(f"Field(kind={kind},")
            if self.scope.annotations:
                self._named("annotation", node.annotation)
        else:
            self.part.out.append("Assign(")
        self._named("targets", [node.target])
        self._named("value", node.value)
        self.part.out.append("),")

    # ------------------------------------------------------------------------- expressions

    def _named(self, name: str, value: Any) -> None:
        if value is None or value == []:
            return
        if isinstance(value, list) and isinstance(value[0], ast.stmt):
            self.block(value, name)
            return
        self.part.out.append(f"{name}=")
        if isinstance(value, list):
            self.part.out.append("[")
            for item in value:
                self.node(item)
                self.part.out.append(",")
            self.part.out.append("]")
        else:
            self.node(value)
        self.part.out.append(",")

    def node(self, node: Any) -> None:
        """Write any part of a tree."""
        # Not ast.dump: its text changes between Python versions (new fields, empty lists), and
        # machines that share a run store need not have the same one.
        if isinstance(node, ast.Name):
            self.part.used.add(node.id)
            self.part.out.append(node.id)
        elif isinstance(node, ast.Constant):
            self.part.out.append(f"{type(node.value).__name__}:{node.value!r}")
        elif isinstance(node, ast.AST):
            self._note_question(node)
            self.part.out.append(f"{type(node).__name__}(")
            for name in node._fields:
                if name in SILENT_FIELDS or (name == "annotation" and not self.scope.annotations):
                    continue
                value = getattr(node, name, None)
                if name == "keywords" and last_name(node) == "Field":
                    value = [keyword for keyword in value or () if keyword.arg not in FIELD_TEXTS]
                if name == "keywords" and last_name(node) == "Declares":
                    value = self._without_says(value or ())
                self._named(name, value)
            self.part.out.append(")")
        else:
            self.part.out.append(repr(node))

    def _without_says(self, keywords: Sequence[ast.keyword]) -> list[ast.keyword]:
        """What a method says about itself is written aside: it counts for those who ask for it."""
        for keyword in keywords:
            if keyword.arg == SAYS:
                counted, self.part = self.part, self.declared.setdefault(SAYS, _Part())
                self.node(keyword.value)
                self.part = counted
        return [keyword for keyword in keywords if keyword.arg != SAYS]

    def _note_question(self, node: ast.AST) -> None:
        name = ""
        if isinstance(node, ast.Attribute) and last_name(node.value) != "options":  # those are validated options
            name = node.attr
        elif isinstance(node, ast.Call) and last_name(node) == "getattr" and len(node.args) > 1:
            name = getattr(node.args[1], "value", "")
        if name in DECLARED:
            self.part.asks.add(name)

    def finish(self) -> Meaning:
        """Decide which imports count: those of names that are used, or that nothing mentions.

        A name that is not even mentioned is there for others to import, or for its effect.
        """

        def counts(local: str) -> bool:
            name = local.split(".")[0]
            return name in self.part.used or name not in self.facts.mentioned

        imports = [part for part in self.part.out if isinstance(part, _Imports) and part.at_module_level]
        bound = {local: origin for part in imports for local, origin in part.bound.items()}
        hidden = {local: origin for local, origin in bound.items() if not counts(local)}
        declared = {}
        for name, part in self.declared.items():
            part.out.append(repr(sorted((local, hidden[local]) for local in part.used & set(hidden))))
            declared[name] = Declared(_digest(part.out, lambda _: True), frozenset(part.asks))
        return Meaning(_digest(self.part.out, counts), hidden, declared, frozenset(self.part.asks))


def _digest(parts: Sequence[str | _Imports], counts: Callable[[str], bool]) -> str:
    text = "".join(part if isinstance(part, str) else part.text(counts) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def meaning(tree: ast.Module) -> Meaning:
    """What a module means; see the head of this file for what counts."""
    writer = _Writer(Facts.of(tree))
    writer.block(tree.body)
    return writer.finish()

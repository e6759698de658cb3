"""Docstrings of every public name: they are there, and say shapes of tensors, errors, and the source of a method.

Public is what no underscore hides, from the module to the name. A method that another class of the package documents
(a hook of ``Regulariser``, a question of ``Kind``, a ``Protocol`` of its module) needs no second text. Nor does a
function that the docstring of its folder asks for (``score`` of a metric).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regft_core import errors
from regft_core.catalogue import OWN
from regft_core.hooks.registry import discover
from stages.cli import PARTS, commands

ROOT = Path(__file__).resolve().parents[2]
ERRORS = {name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, errors.RegftError)}
#: What a docstring says of a tensor: ``[B, n]``, or words.
SHAPE = re.compile(r"\[[^\]]+\]|scalar|shape|0-dim")
TENSOR = re.compile(r"\b(Tensor|NDArray)\b")
#: Annotations of many tensors, each with a shape of its own.
MANY = re.compile(r"\b(dict|Mapping|Sequence|list|tuple|Iterable|Iterator|Callable|Protocol)\b")


@dataclass
class Class:
    """A class of the package: names of its bases, docstrings of its methods."""

    node: ast.ClassDef
    file: Path
    bases: list[str]
    said: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Name:
    """A public name with all docstrings that count for it."""

    place: str
    node: ast.FunctionDef | ast.ClassDef
    docs: str


def classes() -> dict[str, list[Class]]:
    found = defaultdict(list)
    for file in FILES:
        for node in ast.walk(TREES[file]):
            if isinstance(node, ast.ClassDef):
                said = {one.name: doc for one in functions(node) if (doc := ast.get_docstring(one))}
                bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
                found[node.name].append(Class(node, file, bases, said))
    return found


def functions(node: ast.Module | ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef)]


def inherited(cls: Class, method: str) -> str:
    """What the classes above say of a method, and protocols of its module that its class has the shape of."""
    above = [one for base in cls.bases for one in CLASSES.get(base, [])]
    alike = [one for many in CLASSES.values() for one in many if one.file == cls.file and "Protocol" in one.bases]
    texts = [one.said.get(method, "") for one in (*above, *alike)]
    return "\n".join([*texts, *(inherited(one, method) for one in above)])


def names() -> Iterator[Name]:
    for file in FILES:
        place = file.relative_to(ROOT).as_posix()
        asked = ast.get_docstring(TREES[FOLDERS[file.parent]]) or "" if file.parent in FOLDERS else ""
        for node in TREES[file].body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            asks = asked if re.search(rf"``{node.name}\b|^ +{node.name}\(", asked, re.MULTILINE) else ""
            yield Name(f"{place}:{node.lineno} {node.name}", node, f"{ast.get_docstring(node) or ''}{asks}")
            if isinstance(node, ast.ClassDef):
                own = next(one for one in CLASSES[node.name] if one.node is node)
                for method in functions(node):
                    if not method.name.startswith("_") and not foreign(own, method.name):
                        docs = f"{own.said.get(method.name, '')}\n{inherited(own, method.name)}".strip()
                        yield Name(f"{place}:{method.lineno} {node.name}.{method.name}", method, docs)


def foreign(cls: Class, method: str) -> bool:
    """Whether torch or another library documents a method: the base is none of ours."""
    return method in ("forward", "step", "get_input_embeddings") and any(base not in CLASSES for base in cls.bases)


FILES = [
    path
    for path in sorted((ROOT / "regft_core").rglob("*.py"))
    if not {"shipped", "stages"} & {*path.relative_to(ROOT).parts}
    if path.name in ("__init__.py", "_base.py") or not path.name.startswith("_")
]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
FOLDERS = {
    ROOT.joinpath(*one.package.split(".")): ROOT.joinpath(*one.package.split("."), "__init__.py")
    for one in OWN.values()
}
CLASSES = classes()
NAMES = list(names())


def test_every_public_name_has_a_docstring() -> None:
    assert not [name.place for name in NAMES if not name.docs]


def test_tensors_have_a_shape() -> None:
    lacking = []
    for name in NAMES:
        if isinstance(name.node, ast.FunctionDef) and not SHAPE.search(name.docs):
            given = [one for one in (*name.node.args.args, *name.node.args.kwonlyargs) if one.annotation is not None]
            kinds = [ast.unparse(one.annotation) for one in given if one.annotation is not None]
            if any(TENSOR.search(kind) and not MANY.search(kind) for kind in kinds):
                lacking.append(name.place)
    assert not lacking


def test_errors_are_said_where_they_are_raised() -> None:
    lacking = []
    for name in NAMES:
        if isinstance(name.node, ast.FunctionDef):
            lacking += [
                f"{name.place}: {one}"
                for one in sorted(raised(name.node))
                if not re.search(f"{one}|RegftError", name.docs)
            ]
    assert not lacking


def raised(node: ast.FunctionDef) -> set[str]:
    """The errors of ``regft_core.errors`` that a function raises itself."""
    calls = [
        one.exc.func if isinstance(one.exc, ast.Call) else one.exc
        for one in ast.walk(node)
        if isinstance(one, ast.Raise)
    ]
    return {one.id for one in calls if isinstance(one, ast.Name)} & ERRORS


def test_a_regulariser_says_where_it_is_from() -> None:
    source = re.compile(r"\b(19|20)\d\d\b|\b[Oo]urs\b|code: |paper: ")
    lacking = []
    for name, cls in discover().items():
        said = f"{inspect.getdoc(cls)}\n{inspect.getdoc(inspect.getmodule(cls))}\n{dict(cls.sources)}"
        lacking += [] if source.search(said) else [name]
    assert not lacking, "no paper, no code, not 'ours'"


def test_a_command_says_how_it_is_called() -> None:
    parts = {name: part.module.rpartition(".")[2] for name, part in PARTS.items() if "stages" in part.module}
    lacking = []
    for name in commands():
        file = ROOT / "stages" / f"{parts.get(name, name).replace('-', '_')}.py"
        if file.is_file():  # the others are parts of a package with a help of its own
            said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            lacking += [] if re.search(rf"^regft {name}\b", said, re.MULTILINE) else [name]
    assert not lacking

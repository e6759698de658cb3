"""Every text of an error, read from the source; ``python -m tests.structure.messages`` writes the golden file anew.

A text is known by its code, so that the wording can change in one place: the golden file shows what changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "messages.txt"
COMMAND = "python -m tests.structure.messages"
#: Where texts of pydantic's validators become problems: with what code, see ``config/messages/explain.py``.
SCHEMA = "regft_core/config/schema/"
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: Parameters that hold the text of an error, beside ``code``, which comes first.
_TEXTS = ("text", "message", "hint")
#: Calls that only format what they are given.
_TRANSPARENT = (
    "listing",
    "sorted",
    "join",
    "int",
    "len",
    "list",
    "repr",
    "str",
    "float",
    "tuple",
    "dumps",
    "sum",
    "dict",
)


@dataclass(frozen=True)
class Site:
    """A place that makes an error: its codes (a condition may choose one), class and text."""

    place: str
    codes: tuple[str, ...]
    name: str
    text: str


@cache
def sites() -> list[Site]:
    """All places that make an error or a problem, in the order of the files."""
    trees = {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("regft_core", "stages")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    classes = _error_classes(trees.values())
    # Files that are wrong become problems or errors where they are read.
    makers = {"Problem": (0, 4, 5), "WrongFile": (0, 1, 2)}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
                makers |= {"." + name: found for name, found in _passing_on(own).items() if name != "__init__"}
                if node.name in classes and (found := _passing_on(own).get("__init__", (0, 1))):
                    makers[node.name] = found
    files = [_File(file, tree, makers, classes) for file, tree in trees.items()]
    return [site for file in files for site in file.sites()]


def golden() -> str:
    """What the golden file must hold: code, class and text of every site, sorted."""
    rows = {"\t".join((code, site.name, site.text.replace("\n", "\\n"))) for site in sites() for code in site.codes}
    return "".join(f"{row}\n" for row in sorted(rows))


def _error_classes(trees: Iterator[ast.Module]) -> dict[str, ast.ClassDef]:
    """RegftError and what is below it, by name."""
    every = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = {"RegftError": every["RegftError"]}
    while more := {
        name: node
        for name, node in every.items()
        if name not in found and any(isinstance(base, ast.Name) and base.id in found for base in node.bases)
    }:
        found |= more
    return found


def _passing_on(functions: list[ast.FunctionDef]) -> dict[str, tuple[int, ...]]:
    """Functions that take a code and a text -> positions of code and text; () for a constructor without a code."""
    found: dict[str, tuple[int, ...]] = {}
    for function in functions:
        names = [argument.arg for argument in function.args.args if argument.arg != "self"]
        if names[:1] == ["code"] and set(names) & set(_TEXTS):
            found[function.name] = (0, *(names.index(name) for name in _TEXTS if name in names))
        elif function.name == "__init__":
            found[function.name] = ()
    return found


class _File:
    """Reads the sites of one file."""

    def __init__(self, file: str, tree: ast.Module, makers: dict[str, tuple[int, ...]], classes: dict) -> None:
        self.file, self.tree, self.classes = file, tree, classes
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self.makers = makers | _passing_on(list(self.functions.values()))
        self.above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def sites(self) -> Iterator[Site]:
        for node in ast.walk(self.tree):
            place = f"{self.file}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call) and (made := self._maker(node)):
                name, (first, *rest) = made
                code = node.args[first] if len(node.args) > first else ast.Constant(None)
                if not _is_passed_on(code):
                    texts = (self._text(node.args[i], node) for i in rest if i < len(node.args))
                    yield Site(place, tuple(_codes(code)), name, "\n    -> ".join(filter(None, texts)))
            elif not self.file.startswith(SCHEMA):
                continue
            elif isinstance(node, ast.Call) and _label(node.func) == "ValueError":
                yield Site(place, ("invalid-value",), "ValueError", self._text(node.args[0], node))
            elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
                yield Site(place, ("inconsistent",), "Problem", self._text(node.value.elts[-1], node))

    def _maker(self, node: ast.Call) -> tuple[str, tuple[int, ...]] | None:
        """The class of what a call makes and where its code and texts stand; None for any other call."""
        called = ast.unparse(node.func)
        if called == "super().__init__":
            owner = next((above for above in self._around(node) if isinstance(above, ast.ClassDef)), None)
            return (owner.name, (0, 1)) if owner is not None and owner.name in self.classes else None
        key = f".{node.func.attr}" if isinstance(node.func, ast.Attribute) else called
        positions = self.makers.get(key, ())
        return (key if key in self.classes else "Problem", positions) if positions else None

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.above:
            node = self.above[node]
            yield node

    def _text(self, node: ast.AST, at: ast.AST, depth: int = 0) -> str:
        """An expression as a template: literal text, and a name in braces for what is put in."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self._text(part, at, depth) for part in node.values)
        if isinstance(node, ast.FormattedValue):
            return self._text(node.value, at, depth)
        if isinstance(node, ast.BinOp) and _is_text(node):
            return self._text(node.left, at, depth) + self._text(node.right, at, depth)
        if isinstance(node, ast.IfExp):
            return f"({self._text(node.body, at, depth)}|{self._text(node.orelse, at, depth)})"
        values: list[tuple[ast.AST, ast.AST]] = []  # where the text is made, and from there
        if depth < 4 and isinstance(node, ast.Name):
            values = [(value, at) for value in self._assigned(node.id, at)]
        elif depth < 4 and isinstance(node, ast.Call) and (function := self.functions.get(_label(node.func))):
            values = [(part.value, part) for part in ast.walk(function) if isinstance(part, ast.Return) and part.value]
        if not any(_is_text(value) for value, _ in values):
            return f"{{{_label(node)}}}"
        texts = list(dict.fromkeys(self._text(value, place, depth + 1) for value, place in values))
        return texts[0] if len(texts) == 1 else f"({'|'.join(texts)})"

    def _assigned(self, name: str, at: ast.AST) -> list[ast.AST]:
        """What a name may hold when ``at`` is reached, going back to what was certainly assigned."""
        around = [at, *self._around(at)]
        end = next((i for i, above in enumerate(around) if isinstance(above, ast.FunctionDef)), len(around) - 1)
        before = [node for node in ast.walk(around[end]) if isinstance(node, ast.Assign) and node.lineno < at.lineno]
        found: list[ast.AST] = []
        for node in sorted(before, key=lambda node: -node.lineno):
            if values := [value for target in node.targets for value in _bound(name, target, node.value)]:
                found = values + found
                blocks = (block for _, block in ast.iter_fields(self.above[node]) if isinstance(block, list))
                if any(node in block and set(block) & set(around) for block in blocks):
                    return found
        constants = (node for node in self.tree.body if isinstance(node, ast.Assign) and not found)
        return found or [value for node in constants for value in _bound(name, node.targets[0], node.value)]


def _bound(name: str, target: ast.AST, value: ast.AST) -> Iterator[ast.AST]:
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for inner, part in zip(target.elts, value.elts):
            yield from _bound(name, inner, part)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (_is_text(node.left) or _is_text(node.right))
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _label(node: ast.AST) -> str:
    """A short name for what is put into a text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return "name" if node.attr == "__name__" else node.attr
    if isinstance(node, ast.Call):
        return _label(node.args[0] if node.args and _label(node.func) in _TRANSPARENT else node.func)
    if isinstance(node, ast.Subscript | ast.Starred):
        return _label(node.value)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _label(node.generators[0].iter)
    return "..."


def _is_passed_on(code: ast.AST) -> bool:
    """Whether the code comes from elsewhere: ``code`` of a helper, ``error.code`` of what is told again."""
    return _label(code) == "code" and isinstance(code, ast.Name | ast.Attribute)


def _codes(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from (*_codes(node.body), *_codes(node.orelse))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
        yield node.value


if __name__ == "__main__":
    GOLDEN.write_text(golden(), encoding="utf-8")
    print(GOLDEN.relative_to(ROOT))

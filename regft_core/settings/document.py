"""Read one YAML file into plain values that remember their lines.

A safe subset: one mapping per file, no tags, no merge keys, bounded size and
depth, no key twice. The parser is DVC's own (ruamel.yaml on libyaml), so that both see the same values: DVC hashes
those that its parser sees. Its nodes carry the lines; its round-trip loader would take eight times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode
from ruamel.yaml.resolver import implicit_resolvers

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
#: Lists, mappings and their items, aliases counted with all that they stand for.
MAX_NODES = 20_000
#: Python refuses to write out integers of more than 4,300 digits; no value here needs a tenth of that.
MAX_DIGITS = 400

KeyPath = tuple[str | int, ...]
#: Control characters, halves of surrogate pairs, and line breaks of YAML 1.1 that YAML 1.2 takes for text.
_UNREADABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_YAML = YAML(typ="safe", pure=True)
_KINDS = ("str", "int", "float", "bool", "null")


class Place(NamedTuple):
    """Where a value stands: a file, the 1-based line in it (0: none), and the keys that lead to it there."""

    file: str
    line: int
    path: KeyPath

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Document:
    """Values of a YAML file, perhaps with parts of others laid over it (``layers``), and the place of each."""

    data: dict[str, Any]
    places: Mapping[KeyPath, Place]
    file: str

    def place(self, path: KeyPath) -> Place:
        """Return where ``path`` stands; what has no place of its own has the line of its nearest parent."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                file, line, at = self.places[path[:end]]
                return Place(file, line, (*at, *path[end:]))
        return Place(self.file, 0, path)

    def value(self, path: KeyPath) -> Any:
        """Return what stands at ``path``; None where nothing does."""
        value: Any = self.data
        for part in path:
            is_there = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
            value = value[part] if is_there else None
        return value

    def problem(self, code: str, path: KeyPath, message: str, hint: str = "") -> Problem:
        """Return a :class:`Problem` at ``path``, in the file that the value there came from."""
        file, line, at = self.place(path)
        return Problem(code, file, line, dotted(at), message, hint)


def dotted(path: KeyPath) -> str:
    """``("ood", "hans", "labels", 0)`` as ``ood.hans.labels[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) and not isinstance(part, bool) else f".{part}"
    return text.removeprefix(".")


def leaves(data: Mapping[Any, Any], at: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the path and the value of everything in ``data`` that is no mapping, or an empty one."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*at, key))
        else:
            yield (*at, key), value


def edited(file: Path, change: Callable[[Any], None]) -> str:
    """Return the text of a YAML file after a ``change`` of its data; comments and order stay."""
    keeping, written, text = YAML(), StringIO(), file.read_text(encoding="utf-8-sig")
    keeping.preserve_quotes, keeping.width = True, 4096
    if re.search("^ +- ", text, re.MULTILINE):
        keeping.indent(sequence=4, offset=2)
    data = keeping.load(text)
    change(data)
    keeping.dump(data, written)
    return written.getvalue()


# The writer in C where there is one: MLflow's files are most of the time that a sync takes.
class _Writer(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes YAML 1.1, with quotes also around text that YAML 1.2 reads as a number (``1e3``)."""


for _versions, _tag, _pattern, _first in implicit_resolvers:
    if (1, 2) in _versions:
        _Writer.add_implicit_resolver(_tag, _pattern, _first)


def yaml_text(data: Any) -> str:
    """Return plain values as YAML, in their order: short lists and mappings on one line."""
    return str(yaml.dump(data, None, _Writer, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110))


def load_yaml(path: Path, root: Path, text: str | None = None) -> Document:
    """Read a YAML mapping, or what a file would be with this ``text``. Raises ConfigError relative to ``root``."""
    file = relative_name(path, root)
    if text is None:
        text = _read(path, file)
    for number, row in enumerate(text.split("\n"), start=1):
        if character := _UNREADABLE.search(row):
            raise _error("bad-character", file, number, f"holds the character U+{ord(character[0]):04X}", "remove it")
        if row.startswith("%"):
            raise _error("yaml-directive", file, number, "has a % directive", "remove it: files are read as YAML 1.2")
    if sum(map(text.count, ("[", "{", "- ", "? "))) > MAX_NODES:
        raise _error("too-deep", file, 1, f"has more than {MAX_NODES} lists and mappings", "a configuration is short")
    try:
        node = YAML(typ="safe").compose(text)
    except MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(file, error, text)]) from error
    if node is None:
        raise _error("empty-file", file, 0, "is empty", "write 'key: value' lines")
    if not isinstance(node, MappingNode):
        raise _error("not-a-mapping", file, 1, "is not a mapping", "write 'key: value' lines")
    reader = _Reader(file)
    value = reader.value(node, ())
    if reader.problems:
        raise ConfigError(reader.problems)
    return Document(value, {path: Place(file, line, path) for path, line in reader.lines.items()}, file)


def relative_name(path: Path, root: Path) -> str:
    """``path`` as messages show it: below ``root`` relative to it, with forward slashes."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _error(code: str, file: str, line: int, message: str, hint: str) -> ConfigError:
    return ConfigError([Problem(code, file, line, "", message, hint)])


def _read(path: Path, file: str) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        present = [other.name for other in sorted(path.parent.glob("*.yaml"))]
        raise _error("file-missing", file, 0, "does not exist", suggestion(path.name, present, "files there")) from None
    except OSError as error:
        raise _error("cannot-read", file, 0, f"cannot be read: {error.strerror}", "give a YAML file") from error
    if len(content) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES // 1024} KiB"
        raise _error("file-too-large", file, 0, message, "a configuration is short; is it a data file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 (byte 0x{content[error.start]:02x})"
        raise _error("not-utf8", file, line, message, "save it as UTF-8") from error


#: What the parser says, its code, and what to do; the first that fits.
_SYNTAX = (
    ("'\\t'", "tab", "a tab stands where YAML wants spaces: indent with spaces"),
    ("quoted scalar, found unexpected end", "open-quotes", "close the quotes that begin on line {begun}"),
    ("flow", "open-bracket", "close the bracket that begins on line {begun}; commas separate what is in brackets"),
    ("", "yaml-syntax", "check indentation, colons, brackets and quotes from line {begun}"),
)


def _syntax_problem(file: str, error: MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    begun = error.context_mark.line + 1 if error.context_mark is not None else line
    message = "not valid YAML: " + ", ".join(part for part in (error.context, error.problem) if part)
    if re.match(" *\t", "".join(text.split("\n")[line - 1 : line])):
        message += ", '\\t'"
    _, code, hint = next(row for row in _SYNTAX if row[0] in message)
    return Problem(code, file, line, "", message, hint.format(begun=begun))


class _Reader:
    """Turns nodes into values, with the line of each key and item; ``problems``: valid YAML that is refused here."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []

    def value(self, node: Any, path: KeyPath) -> Any:
        """Return what stands at ``path``. Raises ConfigError where nodes nest too deep or aliases multiply."""
        if len(path) > MAX_DEPTH or len(self.lines) > MAX_NODES:
            self._refuse("too-deep", node, path, f"nested deeper than {MAX_DEPTH} levels, or too large", "flatten it")
            raise ConfigError(self.problems)
        if node.tag.rpartition(":")[0] != "tag:yaml.org,2002" or node.tag.endswith((":set", ":omap", ":pairs")):
            self._refuse(
                "yaml-tag", node, path, f"a YAML tag ({node.tag})", "write the plain value; put text in quotes"
            )
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        for index, item in enumerate(node.value):
            self.lines[*path, index] = item.start_mark.line + 1
        return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: Any, path: KeyPath) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node, (*path, "")) if isinstance(key_node, ScalarNode) else None
            at: KeyPath = (*path, "" if key is None else key)
            if key is None:
                self._refuse("bad-key", key_node, path, "a key that is empty or a collection", "keys are single words")
                continue
            if key in values:
                hint = f"the first is on line {self.lines[at]}; keep one"
                self._refuse("duplicate-key", key_node, path, f"key '{key}' is there twice", hint)
                continue
            self.lines[at] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, at)
        return values

    def _scalar(self, node: Any, path: KeyPath) -> Any:
        if "\0" in node.value:
            self._refuse("bad-character", node, path, "a NUL character (\\0 in double quotes)", "remove it")
        kind, value = node.tag.rpartition(":")[2], None
        if kind in _KINDS:
            with suppress(ValueError, IndexError, KeyError):
                value = getattr(_YAML.constructor, f"construct_yaml_{kind}")(ScalarNode(node.tag, node.value))
            if (value is not None or kind == "null") and not (isinstance(value, int) and abs(value) >= 10**MAX_DIGITS):
                return value
        # DVC reads a date, or stops at a number that is none.
        message = f"{node.value[:40]} reads as a {kind.replace('timestamp', 'date')} that no setting can be"
        self._refuse("ambiguous-scalar", node, path, message, f"put quotes around it: '{node.value[:40]}'")
        return node.value

    def _refuse(self, code: str, node: Any, path: KeyPath, message: str, hint: str) -> None:
        self.problems.append(Problem(code, self.file, node.start_mark.line + 1, dotted(path), message, hint))

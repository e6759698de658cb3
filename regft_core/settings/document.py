"""Read one YAML file into plain values that remember their lines.

A safe subset: one mapping per file, no tags, no merge keys, few aliases, bounded size and
depth, no key twice. The parser is DVC's own (ruamel.yaml on libyaml), so that both see the same values: DVC hashes
those that its parser sees. Its events carry the lines; its round-trip loader would take eight times as long.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError

from regft_core.errors import ConfigError, Problem
from regft_core.names import listing, nearest

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
#: Aliases of aliases multiply; 16 of them stand for a few hundred nodes at most.
MAX_ALIASES = 16
#: Python refuses to write out integers of more than 4,300 digits; no value here needs a tenth of that.
MAX_DIGITS = 400

KeyPath = tuple[str | int, ...]
#: Line breaks of YAML 1.1 that YAML 1.2 takes for text, so that two parsers disagree on them.
_OTHER_BREAKS = {"\x85": "NEL", "\u2028": "line separator", "\u2029": "paragraph separator"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_YAML = YAML(typ="safe", pure=True)


class Place(NamedTuple):
    """Where a value stands: a file, the 1-based line in it (0: none), and the keys that lead to it there."""

    file: str
    line: int
    path: KeyPath

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Document:
    """Values of a YAML file, perhaps with parts of others laid over it (``laying``), and where each of them stands.

    ``places[("training", "epochs")]`` is where that key stands; list items have integer parts.
    """

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

    def items(self, path: KeyPath) -> list[Any]:
        """Return the items of the list at ``path``; none where there is no list."""
        items = self.value(path)
        return items if isinstance(items, list) else []

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


def load_yaml(path: Path, root: Path, text: str | None = None) -> Document:
    """Read a YAML mapping.

    Args:
        path: the file.
        root: project root; messages name the file relative to it.
        text: content to use in place of the file's, to check a change before writing it.

    Raises:
        ConfigError: the file is missing or not such a mapping; names the line and the remedy.
    """
    file = relative_name(path, root)
    if text is None:
        text = _read(path, file)
    for number, row in enumerate(text.split("\n"), start=1):
        for character, name in _OTHER_BREAKS.items():
            if character in row:
                raise _error("line-break", file, number, f"holds a {name} (U+{ord(character):04X})", "remove it")
        if _SURROGATE.search(row):  # of a command line that was not UTF-8
            hint = "write the character itself"
            raise _error("half-surrogate", file, number, "holds half of a surrogate pair (U+D800 to U+DFFF)", hint)
    reader = _Reader(file, YAML(typ="safe").parse(text))
    try:
        root_value = reader.document()
    except ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        message = f"holds the control character U+{error.character:04X}"
        raise _error("control-character", file, line, message, "remove it") from error
    except MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(file, error, text)]) from error
    if reader.problems:
        raise ConfigError(reader.problems)
    if root_value is None:
        raise _error("empty-file", file, 0, "is empty", "write 'key: value' lines")
    if not isinstance(root_value, dict):
        raise _error("not-a-mapping", file, 1, "is not a mapping", "write 'key: value' lines")
    return Document(root_value, {path: Place(file, line, path) for path, line in reader.lines.items()}, file)


class AmbiguousScalar(ValueError):
    """An unquoted word that DVC reads as something no value here can be."""


@lru_cache(maxsize=4096)
def resolve(word: str) -> str | int | float | bool | None:
    """Return what an unquoted ``word`` means in YAML 1.2; raises :class:`AmbiguousScalar` with the reason."""
    tag = _YAML.resolver.resolve(ScalarNode, word, (True, False))
    kind = str(tag).rpartition(":")[2]
    if kind == "timestamp":
        raise AmbiguousScalar(f"{word} reads as a date")
    if kind in ("merge", "value"):
        raise AmbiguousScalar(f"{word} has a special meaning in YAML")
    try:
        value: Any = getattr(_YAML.constructor, f"construct_yaml_{kind}")(ScalarNode(tag, word))
    except (ValueError, IndexError):
        value = None
    if (value is None and kind != "null") or (kind == "int" and abs(value) >= 10**MAX_DIGITS):
        shown = word if len(word) <= 40 else word[:40] + "..."
        raise AmbiguousScalar(f"{shown} looks like a number and is none that can be read")
    return value  # type: ignore[no-any-return]


def relative_name(path: Path, root: Path) -> str:
    """``path`` as messages show it: below ``root`` relative to it, with forward slashes."""
    try:
        return path.relative_to(root).as_posix()
    except ValueError:
        return path.as_posix()


def _error(code: str, file: str, line: int, message: str, hint: str) -> ConfigError:
    return ConfigError([Problem(code, file, line, "", message, hint)])


def _read(path: Path, file: str) -> str:
    try:
        if path.exists() and not path.is_file():
            raise _error("not-a-file", file, 0, "is not a file", "give the path of a YAML file")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        present = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        near = nearest(path.name, present)
        hint = f"did you mean '{near}'? " if near else ""
        raise _error("file-missing", file, 0, "does not exist", f"{hint}files there: {listing(present)}") from None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise _error("cannot-read", file, 0, message, "check the file's permissions") from error
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
    ("escape", "bad-escape", "write the character itself, or put text with backslashes in single quotes"),
    ("quoted scalar", "open-quotes", "close the quotes that begin on line {begun}"),
    ("flow", "open-bracket", "close the bracket that begins on line {begun}; commas separate what is in brackets"),
    ("could not find expected ':'", "colon-missing", "a key needs a ':' after it: check line {begun}"),
    (
        "mapping values are not allowed",
        "colon-in-text",
        "quote text that holds ': '; else check indentation",
    ),
    ("block mapping", "indentation", "keys of one level begin in the same column; check brackets and quotes, too"),
    ("", "yaml-syntax", "check indentation, brackets and quotes around here"),
)


def _syntax_problem(file: str, error: MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    rows = text.split("\n")
    shown = rows[line - 1] if 0 < line <= len(rows) else ""
    if "\t" in shown[: len(shown) - len(shown.lstrip())] or "'\\t'" in (error.problem or ""):
        return Problem("tab", file, line, "", "a tab where YAML wants spaces", "indent with spaces")
    if "unexpected ':'" in (error.problem or ""):
        word = re.split(r"[\s,\]}]", shown[error.context_mark.column :])[0]
        message = f"a colon inside brackets without a space after it, at '{word}'"
        hint = "put a space after it, or quotes around text that holds a colon"
        return Problem("colon-in-brackets", file, line, "", message, hint)
    begun = error.context_mark.line + 1 if error.context_mark is not None else line
    context = f"{error.context} (begun on line {begun})" if error.context and begun != line else error.context
    message = "not valid YAML: " + ", ".join(part for part in (context, error.problem) if part)
    _, code, hint = next(row for row in _SYNTAX if row[0] in message)
    return Problem(code, file, line, "", message, hint.format(begun=begun))


class _Reader:
    """Turns parser events into values; nesting is bounded, so that it cannot exhaust the stack.

    Attributes:
        lines: path of a key or of a list's item -> its line.
        problems: what is valid YAML and refused here.
    """

    def __init__(self, file: str, stream: Iterator[events.Event]) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._file = file
        self._events = iter(stream)
        self._anchors: dict[str, Any] = {}
        self._open: list[str | None] = []
        self._aliases = 0

    def document(self) -> Any:
        """Return the value of the whole file; None where it is empty."""
        value, documents = None, 0
        for event in self._events:
            line = event.start_mark.line + 1
            if isinstance(event, events.DocumentStartEvent):
                documents += 1
                if event.version or event.tags:
                    self._refuse("yaml-directive", line, (), "a % directive", "remove it: files are read as YAML 1.2")
                if documents > 1:
                    self._refuse("second-document", line, (), "a second document in one file", "remove the '---' line")
                    break
            elif isinstance(event, events.NodeEvent):
                value = self._node(event, ())
        return value

    def _refuse(self, code: str, line: int, path: KeyPath, message: str, hint: str) -> None:
        self.problems.append(Problem(code, self._file, line, dotted(path[:-1]), message, hint))

    def _node(self, event: Any, path: KeyPath) -> Any:
        line = event.start_mark.line + 1
        if isinstance(event, events.AliasEvent):
            return self._alias(event.anchor or "", line, path)
        if event.tag is not None:
            hint = "write the plain value; put text in quotes"
            self._refuse("yaml-tag", line, path, f"a YAML tag ({event.tag})", hint)
        if isinstance(event, events.ScalarEvent):
            value = self._scalar(event, line, path)
        else:
            if len(path) >= MAX_DEPTH:
                self._refuse("too-deep", line, path, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
                raise ConfigError(self.problems)
            self._open.append(event.anchor)
            value = self._mapping(path) if isinstance(event, events.MappingStartEvent) else self._list(path)
            self._open.pop()
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _list(self, path: KeyPath) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), events.CollectionEndEvent):
            at = (*path, len(items))
            self.lines[at] = event.start_mark.line + 1
            items.append(self._node(event, at))
        return items

    def _mapping(self, path: KeyPath) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        while not isinstance(event := next(self._events), events.CollectionEndEvent):
            line = event.start_mark.line + 1
            key = self._node(event, (*path, ""))
            at = (*path, key)
            if key is None or not isinstance(key, Hashable):
                hint, at = "keys are single words", (*path, "(no key)")
                self._refuse("bad-key", self.lines.get(path, 0), at, "a key that is empty or a collection", hint)
            elif key in values:
                hint = f"the first is on line {self.lines[at]}; keep one"
                self._refuse("duplicate-key", line, at, f"key '{key}' is there twice", hint)
            self.lines.setdefault(at, line)
            values.setdefault(at[-1], self._node(next(self._events), at))
        return values

    def _alias(self, anchor: str, line: int, path: KeyPath) -> Any:
        self._aliases += 1
        if self._aliases == MAX_ALIASES + 1:
            message = f"more than {MAX_ALIASES} aliases (*name)"
            self._refuse("too-many-aliases", line, path, message, "write the values out")
        if anchor not in self._anchors:
            message = f"alias '*{anchor}' refers to " + ("itself" if anchor in self._open else "no anchor above it")
            hint = f"define it before with '&{anchor}', or write the value out"
            self._refuse("unknown-alias", line, path, message, hint)
        return self._anchors.get(anchor)

    def _scalar(self, event: events.ScalarEvent, line: int, path: KeyPath) -> Any:
        if "\0" in event.value:
            hint = "remove it: no name, path or text holds one"
            self._refuse("nul-character", line, path, "a NUL character (\\0 in double quotes)", hint)
        if not event.implicit[0]:
            return event.value
        try:
            return resolve(event.value)
        except AmbiguousScalar as error:
            if event.value == "<<":
                self._refuse("merge-key", line, path, "a merge key (<<)", "write the keys out")
            else:
                hint = f"put quotes around it: '{event.value[:40]}'"
                self._refuse("ambiguous-scalar", line, path, str(error), hint)
        return event.value

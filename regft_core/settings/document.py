"""Read one YAML file into plain values that remember their lines.

A safe subset: one mapping per file, no tags, no merge keys, few aliases, bounded size and
depth, no key twice. The parser is DVC's own (ruamel.yaml on libyaml), so that both see the same values.
Its events carry the lines; its round-trip loader would take eight times as long.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from regft_core.errors import ConfigError, Problem
from regft_core.names import listing, nearest
from regft_core.settings.scalars import AmbiguousScalar, resolve

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
#: Aliases of aliases multiply; 16 of them stand for a few hundred nodes at most.
MAX_ALIASES = 16

KeyPath = tuple[str | int, ...]
#: Line breaks of YAML 1.1 that YAML 1.2 takes for text, so that two parsers disagree on them.
_OTHER_BREAKS = {"\x85": "NEL", "\u2028": "line separator", "\u2029": "paragraph separator"}
_SURROGATE = re.compile("[\ud800-\udfff]")


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
    builder = _Builder(file)
    try:
        builder.consume(YAML(typ="safe").parse(text))
    except ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise _error(
            "control-character", file, line, f"holds the control character U+{error.character:04X}", "remove it"
        ) from error
    except MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(file, error, text)]) from error
    if builder.problems:
        raise ConfigError(builder.problems)
    if not isinstance(builder.root, dict):
        given = "is empty" if builder.root is None else "is not a mapping"
        raise _error(
            ("empty-file" if builder.root is None else "not-a-mapping"),
            file,
            1 if builder.root is not None else 0,
            given,
            "write 'key: value' lines",
        )
    places = {path: Place(file, line, path) for path, line in builder.lines.items()}
    return Document(builder.root, places, file)


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

    def wrong(code: str, hint: str) -> Problem:
        return Problem(code, file, line, "", message, hint)

    if "escape" in (error.problem or ""):
        return wrong("bad-escape", "write the character itself, or put text with backslashes in single quotes")
    if "quoted scalar" in (context or ""):
        return wrong("open-quotes", f"close the quotes that begin on line {begun}")
    if "flow" in (context or ""):
        hint = f"close the bracket that begins on line {begun}; commas separate what is in brackets"
        return wrong("open-bracket", hint)
    if "could not find expected ':'" in (error.problem or ""):
        hint = f"a key needs a ':' after it: check line {begun}, its indentation, brackets and quotes"
        return wrong("colon-missing", hint)
    if "mapping values are not allowed" in (error.problem or ""):
        hint = "put quotes around text that holds ': '; else check the indentation of this line and the one above"
        return wrong("colon-in-text", hint)
    if "block mapping" in (context or ""):
        hint = "keys of one level begin in the same column; check indentation, brackets and quotes here and above"
        return wrong("indentation", hint)
    return wrong("yaml-syntax", "check indentation, brackets and quotes around here")


@dataclass
class _Frame:
    """A collection under construction."""

    value: dict[Any, Any] | list[Any]
    path: KeyPath
    anchor: str | None
    key: Any = None
    has_key: bool = False


@dataclass
class _Builder:
    """Turns parser events into values without recursion, so that depth cannot exhaust the stack."""

    file: str
    root: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _stack: list[_Frame] = field(default_factory=list)
    _anchors: dict[str, Any] = field(default_factory=dict)
    _aliases: int = 0
    _documents: int = 0

    def consume(self, stream: Iterator[events.Event]) -> None:
        for event in stream:
            line = event.start_mark.line + 1
            if isinstance(event, events.DocumentStartEvent):
                self._documents += 1
                if event.version or event.tags:
                    self._refuse("yaml-directive", line, "a % directive", "remove it: files are read as YAML 1.2")
                if self._documents > 1:
                    self._refuse("second-document", line, "a second document in one file", "remove the '---' line")
                    return
            elif isinstance(event, events.AliasEvent):
                self._alias(event.anchor or "", line)
            elif isinstance(event, events.CollectionStartEvent):
                self._check_tag(event.tag, line)
                if len(self._stack) >= MAX_DEPTH:
                    self._refuse("too-deep", line, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
                    return
                value: dict[Any, Any] | list[Any] = {} if isinstance(event, events.MappingStartEvent) else []
                self._stack.append(_Frame(value, self._next_path(line, value), event.anchor))
            elif isinstance(event, events.CollectionEndEvent):
                frame = self._stack.pop()
                self._place(frame.value, frame.anchor)
            elif isinstance(event, events.ScalarEvent):
                self._check_tag(event.tag, line)
                self._scalar(event, line)

    def _refuse(self, code: str, line: int, message: str, hint: str) -> None:
        path = self._stack[-1].path if self._stack else ()
        self.problems.append(Problem(code, self.file, line, dotted(path), message, hint))

    def _check_tag(self, tag: str | None, line: int) -> None:
        if tag is not None:
            self._refuse("yaml-tag", line, f"a YAML tag ({tag})", "write the plain value; put text in quotes")

    def _alias(self, anchor: str, line: int) -> None:
        self._aliases += 1
        if self._aliases == MAX_ALIASES + 1:
            self._refuse("too-many-aliases", line, f"more than {MAX_ALIASES} aliases (*name)", "write the values out")
        if anchor not in self._anchors:
            unfinished = any(frame.anchor == anchor for frame in self._stack)
            message = f"alias '*{anchor}' refers to " + ("itself" if unfinished else "no anchor above it")
            self._refuse("unknown-alias", line, message, f"define it before with '&{anchor}', or write the value out")
        value = self._anchors.get(anchor)
        self._next_path(line, value)
        self._place(value, None)

    def _scalar(self, event: events.ScalarEvent, line: int) -> None:
        value: Any = event.value
        if "\0" in value:
            self._refuse(
                "nul-character",
                line,
                "a NUL character (\\0 in double quotes)",
                "remove it: no name, path or text holds one",
            )
        if event.implicit[0]:
            try:
                value = resolve(event.value)
            except AmbiguousScalar as error:
                if event.value == "<<":
                    self._refuse("merge-key", line, "a merge key (<<)", "write the keys out")
                else:
                    self._refuse("ambiguous-scalar", line, str(error), f"put quotes around it: '{event.value[:40]}'")
        self._next_path(line, value)
        self._place(value, event.anchor)

    def _next_path(self, line: int, value: Any) -> KeyPath:
        """The path of the node that starts here; its line is noted once, at the key if it has one."""
        if not self._stack:
            return ()
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            path = (*frame.path, len(frame.value))
        elif frame.has_key:
            return (*frame.path, frame.key)
        elif isinstance(value, dict | list):
            return frame.path
        else:
            path = (*frame.path, value)
        if path not in self.lines:
            self.lines[path] = line
        elif not isinstance(frame.value, list) and value in frame.value:
            self._refuse(
                "duplicate-key",
                line,
                f"key '{value}' is there twice",
                f"the first is on line {self.lines[path]}; keep one",
            )
        return path

    def _place(self, value: Any, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = value
        if not self._stack:
            self.root = value
            return
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.has_key:
            if frame.key not in frame.value:
                frame.value[frame.key] = value
            frame.has_key = False
        else:
            if value is None or not isinstance(value, Hashable):
                line = self.lines.get(frame.path, 0)
                self._refuse("bad-key", line, "a key that is empty or a collection", "keys are single words")
                value = "(no key)"
            frame.key, frame.has_key = value, True

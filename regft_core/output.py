"""The one way of text to the terminal: standard output and error of every command go through ``guard``.

A text may come from a file of somebody else: a key of a YAML file, a column's name, a label. It is shown without effect
on the terminal: control characters, escape codes and marks that turn the direction of writing are written out
(``\\x1b``). What the terminal's encoding lacks is replaced, and a closed pipe (``| head``) ends no work: the rest goes
nowhere.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console

#: Control characters but tab and line feed, and the marks of Unicode that reorder a line.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
#: Characters of regft's own texts, for terminals without them.
_ASCII = {
    **{"\u2026": "...", "\u00b1": "+-", "\u00d7": "x", "\u2013": "-", "\u2014": "-", "\u2212": "-", "\u2192": "->"},
    **{"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2264": "<=", "\u2265": ">=", "\u00b7": "-"},
    **{"\u2588": "#", "\u2591": ".", "\u2500": "-", "\u2501": "-", "\u2502": "|", "\u2503": "|", "\u25cf": "o"},
    **{"\u00b2": "2", "\u2248": "~", "\u0394": "d", "\u2713": "+", "\u2717": "x", "\u00a0": " "},
}
_ERRORS = "regft-terminal"


def without_control(text: str) -> str:
    """``text`` with every character that would act on a terminal written out as an escape sequence."""
    return _ACTING.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Stand-ins for what an encoding lacks, for ``codecs.register_error``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in lacking), error.end


codecs.register_error(_ERRORS, _replaced)


class Guarded:
    """A text stream that people read. Everything beside ``write`` is that of the stream itself.

    Args:
        stream: standard output or standard error.
        acting: write control characters as they are: for what draws on the terminal and names nothing foreign.
    """

    def __init__(self, stream: TextIO, *, acting: bool = False) -> None:
        self.stream, self.acting = stream, acting
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_ERRORS)

    def write(self, text: str) -> int:
        try:
            self.stream.write(text if self.acting else without_control(text))
        except BrokenPipeError:
            self._to_nobody()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except BrokenPipeError:
            self._to_nobody()

    def _to_nobody(self) -> None:
        """Lead the stream into nothing, since nobody reads it any more."""
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self.stream.fileno())
            os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard() -> None:
    """Lead standard output and error of this process through :class:`Guarded`; a second call changes nothing.

    Also within :func:`unguarded`, where one of our own commands is called by another program.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and (not isinstance(stream, Guarded) or stream.acting):
            setattr(sys, name, Guarded(stream.stream if isinstance(stream, Guarded) else stream))


def drawing(stream: Any) -> Any:
    """``stream`` for one that moves the cursor itself (a progress bar) and writes no foreign text."""
    return Guarded(stream.stream, acting=True) if isinstance(stream, Guarded) else stream


def data() -> TextIO:
    """Standard output for the answers of a program that another one reads: UTF-8, as they are."""
    stream: Any = sys.stdout.stream if isinstance(sys.stdout, Guarded) else sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="strict")
    return cast("TextIO", stream)


@contextlib.contextmanager
def unguarded() -> Iterator[None]:
    """Within the block standard output and error are the process's own, for another program's commands."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (drawing(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def console(*, error: bool = False, **options: Any) -> Console:
    """A console of rich on standard output or ``error``: its own colours act, those of texts are written out."""
    from rich.console import Console
    from rich.segment import Segment

    class Clean(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                yield segment if control else Segment(without_control(text), style)

    return Clean(file=drawing(sys.stderr if error else sys.stdout), **options)

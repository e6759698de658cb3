"""The one way of text to the terminal: standard output and error of every command go through ``guard``.

A text may come from a file of somebody else: a key of a YAML file, a column's name, a label. It is shown without effect
on the terminal: control characters, escape codes and marks that turn the direction of writing are written out
(``\\x1b``). What the terminal's encoding lacks is replaced, and a closed pipe (``| head``) ends no work: the rest goes
nowhere.

Progress of a stage: a run writes its position to a small file, in whichever process it is. The parent process reads
the files and shows a line for the stage, with the time left, and one for each run; in a log file a line now and then.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from regft_core.names import duration

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
REFRESH_SECONDS = 0.5
LOG_SECONDS = 60.0
#: Share of the work below which the time left would be a guess.
ENOUGH = 0.02


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

    ``acting`` writes control characters as they are, for what draws on the terminal and names nothing foreign.
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
    """Lead standard output and error of this process through :class:`Guarded`, once; also within ``unguarded``."""
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


class ProgressWriter:
    """Writes one run's position to ``folder/<run>.json``, nothing without a folder; never fails the run.

    It writes once when it is made: a run that ends without any file was taken from the run store.
    """

    def __init__(self, folder: str | None, run: str, phase: str) -> None:
        self.path = Path(folder) / f"{run}.json" if folder else None
        self.phase, self._last = phase, float("-inf")
        self(0, 0, 0, None, 0.0)
        self._last = float("-inf")  # the first real position is shown at once

    def __call__(self, step: int, total: int, epoch: int, loss: float | None, seconds: float) -> None:
        now = time.monotonic()
        if self.path is None or (now - self._last < REFRESH_SECONDS and step < total):
            return
        self._last = now
        state = {"phase": self.phase, "step": step, "total": total, "epoch": epoch, "loss": loss}
        temporary = self.path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(state), encoding="utf-8")
            os.replace(temporary, self.path)
        except OSError:
            self.path = None  # the board is gone; the run goes on


class ProgressBoard:
    """Draws the progress of several jobs until it is closed (use as a context manager).

    Args:
        title: what is run, for instance ``finetune``.
        shares: name of a job -> what it goes through, in order, with the share of the work (any unit).
    """

    def __init__(self, title: str, shares: Mapping[str, Mapping[str, float]]) -> None:
        self.title, self.shares = title, shares
        self.folder = tempfile.mkdtemp(prefix="regft-progress-")
        #: Job -> whether it was computed; else it was found in the run store.
        self._ended: dict[str, bool] = {}
        #: When the first position of a run was seen, and the share done then: before it, workers only load libraries.
        self._begun: tuple[float, float] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProgressBoard:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ended(self, run: str) -> None:
        """Take note that a job has ended."""
        file = Path(self.folder) / f"{run}.json"
        self._ended[run] = file.is_file()
        file.unlink(missing_ok=True)

    def states(self) -> dict[str, dict[str, Any]]:
        """Positions of the jobs at work."""
        states = {}
        for run in [run for run in self.shares if run not in self._ended]:
            with contextlib.suppress(OSError, ValueError):  # it has not started, or is written at this moment
                states[run] = json.loads((Path(self.folder) / f"{run}.json").read_text(encoding="utf-8"))
        return states

    def share_done(self, states: Mapping[str, Mapping[str, Any]]) -> float:
        """Share of the stage's work that is done, jobs from the store left out, between 0 and 1."""
        done, work = 0.0, 0.0
        for run, phases in self.shares.items():
            size = sum(phases.values())
            if (computed := self._ended.get(run)) is not None:
                done, work = done + computed * size, work + computed * size
                continue
            work += size
            if (state := states.get(run)) is not None and state["phase"] in phases:
                inside = min(1.0, state["step"] / state["total"]) if state["total"] else 0.0
                before = list(phases).index(state["phase"])
                done += sum(list(phases.values())[:before]) + inside * phases[state["phase"]]
        return min(1.0, done / work) if work else 1.0

    def summary(self, states: Mapping[str, Mapping[str, Any]]) -> str:
        """``2 of 6 jobs, about 3 min left``; without the time while too little is done to tell."""
        text, now, share = f"{len(self._ended)} of {len(self.shares)} jobs", time.monotonic(), self.share_done(states)
        if self._begun is None and states:
            self._begun = now, share
        if self._begun is None or share - self._begun[1] < ENOUGH:
            return text
        return f"{text}, about {duration((now - self._begun[0]) * (1 - share) / (share - self._begun[1]))} left"

    def _run(self) -> None:
        if sys.stderr.isatty():
            from rich.live import Live
            from rich.text import Text

            with Live(console=console(error=True), transient=True, auto_refresh=False) as live:
                while not self._stop.wait(REFRESH_SECONDS):
                    states = self.states()
                    lines = [f"{self.title}: {self.share_done(states):.0%} done, {self.summary(states)}"]
                    lines += [f"  {run}: {position(state)}" for run, state in states.items()]
                    live.update(Text("\n".join(lines)), refresh=True)
            return
        shown, last = "", time.monotonic()
        while not self._stop.wait(min(REFRESH_SECONDS, LOG_SECONDS)):
            line = f"  {self.title}: {self.summary(self.states())}"  # the pace counts from the first position
            if time.monotonic() - last >= LOG_SECONDS:
                if line != shown:
                    print(line, file=sys.stderr, flush=True)
                shown, last = line, time.monotonic()


def position(state: Mapping[str, Any]) -> str:
    """``finetune 20/32, epoch 3, loss 0.412``; of an evaluation without epoch and loss."""
    if not state["total"]:
        return f"{state['phase']} starts"
    training = "" if state["loss"] is None else f", epoch {state['epoch'] + 1}, loss {state['loss']:.3f}"
    return f"{state['phase']} {state['step']}/{state['total']}{training}"

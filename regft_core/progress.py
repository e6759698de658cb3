"""Progress of the runs of one stage on the screen, whichever process they run in.

A run writes its position to a small file a few times a second; the parent process reads the
files and shows a line for the whole stage, with the time left, and one for each run at work. Without a
terminal (a log file) it prints a line now and then instead. A run that ends gets a line of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from regft_core.names import duration
from regft_core.output import console

REFRESH_SECONDS = 0.5
LOG_SECONDS = 60.0
#: Share of the work below which the time left would be a guess.
ENOUGH = 0.02


class ProgressWriter:
    """Writes one run's position to ``folder/<run>.json``; never fails the run.

    It writes once when it is made: a run that ends without any file was taken from the run store.

    Args:
        folder: of the board; None writes nothing.
        phase: which of the run's phases this is; one of the board's ``phases``.
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
            with suppress(OSError, ValueError):  # it has not started, or is written at this moment
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

"""Progress of the runs of one stage on the screen, whichever process they run in.

A run writes its position to a small file a few times a second; the parent process reads the
files and draws one bar per seed. Without a terminal (a log file) it prints a line now and
then instead.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

REFRESH_SECONDS = 0.5
LOG_SECONDS = 15.0


class ProgressWriter:
    """Writes one run's position to ``folder/<run>.json``; never fails the run."""

    def __init__(self, folder: str | None, run: str, phase: str) -> None:
        self.path = Path(folder) / f"{run}.json" if folder else None
        self.phase = phase
        self._last = 0.0

    def __call__(self, step: int, total: int, epoch: int, loss: float | None, seconds: float) -> None:
        now = time.monotonic()
        if self.path is None or (now - self._last < REFRESH_SECONDS and step < total):
            return
        self._last = now
        state = {"phase": self.phase, "step": step, "total": total, "epoch": epoch, "loss": loss, "seconds": seconds}
        temporary = self.path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(state), encoding="utf-8")
            os.replace(temporary, self.path)
        except OSError:
            self.path = None  # the board is gone; training goes on


class ProgressBoard:
    """Draws the progress of several runs until it is closed (use as a context manager)."""

    def __init__(self, title: str, runs: Sequence[str]) -> None:
        self.title = title
        self.runs = list(runs)
        self.folder = tempfile.mkdtemp(prefix="regft-progress-")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProgressBoard:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self) -> dict[str, dict[str, Any]]:
        states = {}
        for run in self.runs:
            try:
                states[run] = json.loads((Path(self.folder) / f"{run}.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
        return states

    def _run(self) -> None:
        (self._draw_bars if sys.stderr.isatty() else self._print_lines)()

    def _draw_bars(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("step {task.completed:.0f}/{task.total:.0f}  loss {task.fields[loss]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            tasks: dict[str, Any] = {}
            while not self._stop.wait(REFRESH_SECONDS):
                for run, state in self._read().items():
                    description = f"{self.title} {run} {state['phase']} epoch {state['epoch'] + 1}"
                    loss = "-" if state["loss"] is None else f"{state['loss']:.3f}"
                    if run not in tasks:
                        tasks[run] = bars.add_task(description, total=state["total"], loss=loss)
                    bars.update(
                        tasks[run], description=description, completed=state["step"], total=state["total"], loss=loss
                    )

    def _print_lines(self) -> None:
        shown: dict[str, tuple[str, int]] = {}
        while not self._stop.wait(LOG_SECONDS):
            for run, state in self._read().items():
                position = (state["phase"], state["step"])
                if shown.get(run) == position:
                    continue
                shown[run] = position
                loss = "-" if state["loss"] is None else f"{state['loss']:.3f}"
                left = state["seconds"] / max(1, state["step"]) * (state["total"] - state["step"])
                line = f"{self.title} {run} {state['phase']}: step {state['step']}/{state['total']}"
                print(f"  {line}, loss {loss}, about {left:.0f} s left", file=sys.stderr, flush=True)

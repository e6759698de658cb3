"""How far the prediction of a file is, on standard error: a changing line on a terminal, new lines in a pipe."""

from __future__ import annotations

import sys
import time

from regft_core.data.file_format import Table
from regft_core.output import drawing

#: Seconds between two lines of progress: on a terminal, and in a log file.
_EVERY = (0.5, 15.0)


class Progress:
    """Rows so far, share of the file and time left. ``resumed``: rows that an earlier call has predicted."""

    def __init__(self, table: Table, resumed: int = 0) -> None:
        self._done, self._resumed, self._skipped = table.done, resumed, table.done()
        self._terminal = sys.stderr.isatty()
        self._started = self._last = time.monotonic()

    def __call__(self, rows: int) -> None:
        now = time.monotonic()
        if now - self._last < _EVERY[0 if self._terminal else 1]:
            return
        self._last = now
        spent, done = now - self._started, self._done()
        here = done - self._skipped
        left = f", about {spent * (1 - done) / here:.0f} s left" if here > 0 and done < 1 else ""
        rate = (rows - self._resumed) / spent
        text = f"{rows:,} rows, {100 * done:.0f}% of the file, {rate:,.0f} rows/s{left}"
        drawing(sys.stderr).write(f"\r{text}\x1b[K" if self._terminal else f"  {text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._terminal:
            print("\r\x1b[K", end="", file=drawing(sys.stderr), flush=True)

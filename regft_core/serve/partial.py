"""An output that grows chunk by chunk beside its name, so that a killed prediction goes on where it stopped.

``predictions.csv.partial`` has the lines, ``predictions.csv.partial.json`` says how many of its bytes count, how many
rows they are, and what they were made from. Whatever was written after that is cut off when the work goes on.
"""

from __future__ import annotations

import fcntl
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from regft_core.disk.files import explained, fsync, write_json
from regft_core.disk.reading import read_json
from regft_core.errors import DataError, StoreError


@dataclass
class Partial:
    """The open file, and what an earlier call has counted; empty for a new one."""

    file: IO[str]
    counted: dict[str, Any]
    _state: Path
    _key: str

    def keep(self, counted: dict[str, Any]) -> None:
        """Make the lines so far durable; ``counted`` is what a later call gets."""
        with explained(self._state):
            self.file.flush()
            os.fsync(self.file.fileno())
        size = self.file.buffer.tell()  # type: ignore[attr-defined]
        write_json(self._state, {"key": self._key, "bytes": size, "counted": counted})


@contextmanager
def partial_file(out: Path, key: str) -> Iterator[Partial]:
    """Yield the lines of ``out`` so far, which become ``out`` when the block ends without an error.

    When the process is interrupted or killed, or the disk is full, they wait for the next call with the same ``key``.
    After another error nothing of them stays: it would come again. Lines of another key are dropped, with a notice.

    Raises:
        DataError: another process writes the same output.
        StoreError: it cannot be written.
    """
    path = out.with_name(f"{out.name}.partial")
    state = path.with_name(f"{path.name}.json")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        binary = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - closed below
    try:
        try:
            fcntl.flock(binary, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                "in-the-way", f"--out {out}: another process is writing it now\n    -> wait, or choose another name"
            ) from error
        counted, size = _known(path, state, key)
        binary.truncate(size)
        binary.seek(size)
        file = io.TextIOWrapper(binary, encoding="utf-8", newline="", write_through=True)
        try:
            yield Partial(file, counted, state, key)
        except StoreError:
            raise
        except Exception:
            path.unlink(missing_ok=True)
            state.unlink(missing_ok=True)
            raise
        with explained(out):
            file.flush()
            os.fsync(file.fileno())
            os.replace(path, out)
            fsync(out.parent)
        state.unlink(missing_ok=True)
    finally:
        with suppress(OSError, ValueError):
            binary.close()


def _known(path: Path, state: Path, key: str) -> tuple[dict[str, Any], int]:
    """Counts of the lines in ``path``, and how many of its bytes are valid; nothing of another key."""
    try:
        state_before = read_json(state)
    except StoreError:
        return {}, 0
    if state_before.get("key") != key or path.stat().st_size < state_before["bytes"]:
        print(f"{path}: of another model, file or option; begins anew", file=sys.stderr)
        return {}, 0
    return dict(state_before["counted"]), int(state_before["bytes"])

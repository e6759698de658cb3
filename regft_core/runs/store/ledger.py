"""How many bytes of tensors a run store holds at most, without looking at every run.

``<store>/tensors.log`` has one line from the last look at the whole store, and one for every write since.
Deletions are not noted, so the sum is too high rather than too low: while it is within the budget, nothing
needs to be pruned and nothing is listed. A line can be lost (a look at the same moment, a killed process,
runs that are copied in), so the whole store is still read once a day.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.io.files import write_text

LEDGER = "tensors.log"
#: A look at the whole store counts for this long.
LOOK_SECONDS = 86_400.0
#: Ledger -> what was read of it, when the store was last looked at, and the sum; a fill asks after every run.
_read: dict[Path, tuple[bytes, int, int]] = {}


def note_written(store: Path, size: int) -> None:
    """Note that ``size`` bytes of tensors were written; a ledger that cannot be written is made anew by a look."""
    if size <= 0:
        return
    with suppress(OSError):
        descriptor = os.open(store / LEDGER, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, f"wrote {size}\n".encode())
        finally:
            os.close(descriptor)


def note_look(store: Path, size: int) -> None:
    """Note that the whole store was found to hold ``size`` bytes of tensors."""
    with suppress(StoreError):  # a store one may only read
        write_text(store / LEDGER, f"held {size} {int(time.time())}\n")


def at_most(store: Path) -> int | None:
    """Bytes of tensors in the store, or a little more; None when somebody has to look."""
    try:
        looked, total = _sum(store / LEDGER)
    except (OSError, ValueError):
        return None
    return total if 0 <= time.time() - looked < LOOK_SECONDS else None


def _sum(ledger: Path) -> tuple[int, int]:
    """When the store was last looked at, and the bytes then with those written since.

    Only what was added since it was last read is taken apart: else a store of many runs would cost their square.
    Raises ``OSError``, and ``ValueError`` for what is no ledger.
    """
    content = ledger.read_bytes()
    before, looked, total = _read.get(ledger, (b"", 0, 0))
    if not before or not content.startswith(before):
        before, _, rest = content.partition(b"\n")
        word, held, at = before.split()
        if word != b"held":
            raise ValueError(f"{ledger}: its first line is {before!r}")
        looked, total = int(at), int(held)
    else:
        rest = content[len(before) :]
    for line in rest.splitlines():
        _, written = line.split()
        total += int(written)
    if content.endswith(b"\n"):
        _read[ledger] = content, looked, total
    return looked, total

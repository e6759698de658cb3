"""Which weights are still needed: a process that computes runs says so, and pruning spares them.

``<store>/needed/<host>.<pid>.<start>.<random>`` is one such process: a key a line, then a line ``done <key>`` for
each that it no longer needs. The file counts while that process lives. On another host that cannot be asked, so the
time of the file is renewed with the locks (``RENEW_SECONDS``), and one that was not renewed for ``NEEDED_DAYS``
counts no more. Pruning removes what does not count.

Nothing is wrong without it: weights that were pruned under a reader are trained again, to the same bits.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.io.files import write_text
from regft_core.io.owned_names import owned_name, owner_is_dead, sweep_stale
from regft_core.io.write_errors import may_not_write
from regft_core.runs.store.locks import renewed

log = logging.getLogger(__name__)

FOLDER = "needed"
#: What a process of another host needs lapses when its file was not renewed for this long.
NEEDED_DAYS = 1
#: File -> its time and size when it was last read, and the keys in it; pruning asks before each deletion.
_read: dict[Path, tuple[tuple[int, int], frozenset[str]]] = {}


class Needed:
    """The keys that this process still needs, in its file."""

    def __init__(self, path: Path, keys: Iterable[str]) -> None:
        self.path = path
        self._left = Counter(keys)

    def done(self, keys: Iterable[str]) -> None:
        """Need each of ``keys`` one time less; others, and a file that cannot be written now, change nothing."""
        left = self._left
        ended = []
        for key in keys:
            if left[key] > 0:
                left[key] -= 1
                ended += [key] * (left[key] == 0)
        if not ended:
            return
        with suppress(OSError):  # it goes when the process ends
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(descriptor, "".join(f"done {key}\n" for key in ended).encode())
            finally:
                os.close(descriptor)

    def renew(self) -> None:
        """Show that this process lives."""
        with suppress(OSError):
            os.utime(self.path)


@contextmanager
def needed(store: Path, keys: Iterable[str]) -> Iterator[Needed]:
    """Spare the weights of ``keys`` from every pruning of ``store`` inside the block; see ``RunStore.needed``."""
    mine = Needed(store / FOLDER / owned_name(), keys)
    sweep_stale(mine.path.parent)
    with suppress(StoreError):
        needed_keys(store)  # for what dead processes left, where nothing is ever pruned
    try:
        write_text(mine.path, "".join(f"{key}\n" for key in sorted(mine._left)))
    except StoreError as error:
        if not may_not_write(error):
            raise
        log.debug("%s", error)  # nothing is trained in a store one may only read
    try:
        with renewed(mine):
            yield mine
    finally:
        with suppress(OSError):
            mine.path.unlink(missing_ok=True)


def needed_keys(store: Path) -> set[str]:
    """The keys that any living process needs; the files of dead ones are removed where this user may.

    Raises ``StoreError`` when they cannot be read: then nobody knows what may be pruned.
    """
    folder, found = store / FOLDER, set[str]()
    try:
        for entry in os.scandir(folder):
            path = Path(entry.path)
            with suppress(FileNotFoundError):  # its process ends at this moment
                seen = entry.stat()
                if owner_is_dead(entry.name, seen.st_mtime, NEEDED_DAYS * 86_400.0):
                    with suppress(OSError):
                        path.unlink()
                elif not entry.name.startswith("."):
                    found |= _keys_in(path, (seen.st_mtime_ns, seen.st_size))
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return found
        raise StoreError(
            "cannot-read",
            f"{folder}: which weights are needed cannot be read: {error.strerror}\n"
            "    -> check the folder's permissions; until then no weights are deleted",
        ) from error
    return found


def _keys_in(path: Path, seen: tuple[int, int]) -> frozenset[str]:
    if path not in _read or _read[path][0] != seen:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # a line that is being written has no end yet
        ended = {line.removeprefix("done ") for line in lines if line.startswith("done ")}
        _read[path] = seen, frozenset(line for line in lines if line[:5] != "done ") - ended
    return _read[path][1]

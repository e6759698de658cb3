"""Pins: who still needs the weights of a run, between two phases or on another machine.

``<key>.pins/<owner>`` is an empty file beside the run, so it outlives the run's directory being
replaced, set aside or not there yet. Its time is when the owner last said so. The rule that
pruning follows is in ``store.py``.

One lock per store, ``pins.lock``, is held for the moment in which a pin is written and the
weights are looked for, and for the moment in which pruning looks for pins and marks the run. So
pinning never waits for a training, which holds the run's own lock for hours.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.io import explained, fsync_directory
from regft_core.runs.killpoints import killpoint
from regft_core.runs.locks import locked_file

#: An owner that was given up never unpins; after this many days its pin no longer counts.
PIN_DAYS = 30
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@contextmanager
def pin_lock(store: Path) -> Iterator[None]:
    """Hold the lock of all pins of a store, for moments only; raises ``StoreError``."""
    path = store / "pins.lock"
    with ExitStack() as held:
        with explained(path):
            store.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked_file(path))
        yield


class Pins:
    """The pins of one run, in ``directory``; who changes them, or acts on them, holds ``pin_lock``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @staticmethod
    def check(owner: str) -> None:
        """Raise ``ValueError`` unless ``owner`` is a plain name."""
        if not _OWNER.fullmatch(owner):
            raise ValueError(
                f"{owner!r} is no name for the owner of a pin: letters, digits, '.', '_' and '-', "
                "the first a letter or digit, 128 at most; the key of the run that needs this one is good"
            )

    def add(self, owner: str) -> None:
        """Pin, or pin again from now on; durable on return. Raises ``StoreError``."""
        path = self.directory / owner
        with explained(path):
            self.directory.mkdir(parents=True, exist_ok=True)
            path.touch()
            killpoint("pin.touched")
            fsync_directory(self.directory)
            fsync_directory(self.directory.parent)

    def remove(self, owner: str) -> None:
        """Take a pin back; one that is not there is fine. Raises ``StoreError``."""
        path = self.directory / owner
        with explained(path):
            path.unlink(missing_ok=True)
        self._drop_empty_directory()

    def _ages(self) -> list[tuple[str, bool]]:
        """Owners in order, and whether their pins still count."""
        limit = time.time() - PIN_DAYS * 86_400.0
        found = []
        try:
            for entry in sorted(os.scandir(self.directory), key=lambda entry: entry.name):
                if _OWNER.fullmatch(entry.name):  # file systems have files of their own
                    with suppress(FileNotFoundError):  # taken back a moment ago
                        found.append((entry.name, entry.stat().st_mtime >= limit))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError("cannot-read", f"{self.directory}: the pins cannot be read: {error.strerror}") from error
        return found

    def live(self) -> list[str]:
        """Return the owners whose pins count, in order; raises ``StoreError``. Needs no lock to look."""
        return [owner for owner, counts in self._ages() if counts]

    def drop_expired(self) -> None:
        """Remove the pins that no longer count, where this user may."""
        expired = [owner for owner, counts in self._ages() if not counts]
        for owner in expired:
            with suppress(OSError):
                (self.directory / owner).unlink()
        if expired:
            self._drop_empty_directory()

    def _drop_empty_directory(self) -> None:
        with suppress(OSError):
            self.directory.rmdir()

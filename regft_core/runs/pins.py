"""Pins: who still needs the weights of a run, between two phases or on another machine.

``<key>.pins/<owner>`` is an empty file beside the run, so it outlives the run's directory being
replaced, set aside or not there yet. Its time is when the owner last said so. The rule that
pruning follows is in ``store.py``.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.io import explained, fsync_directory
from regft_core.runs.killpoints import killpoint
from regft_core.runs.locks import locked_file

#: An owner that was given up never unpins; after this many days its pin no longer counts.
PIN_DAYS = 30
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ATTEMPTS = 100


class Pins:
    """The pins of one run, in ``directory``; safe to use from many processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _path(self, owner: str) -> Path:
        if not _OWNER.fullmatch(owner):
            raise ValueError(
                f"{owner!r} is no name for the owner of a pin: letters, digits, '.', '_' and '-', "
                "the first a letter or digit, 128 at most; the key of the run that needs this one is good"
            )
        return self.directory / owner

    def add(self, owner: str) -> None:
        """Pin, or pin again from now on; durable on return.

        Raises ``ValueError`` for an impossible owner, ``StoreError`` when it cannot be written.
        """
        path = self._path(owner)
        with explained(path):
            for _ in range(_ATTEMPTS):
                # Others remove expired pins, and the directory with the last one, at any moment.
                with suppress(FileNotFoundError, FileExistsError):
                    self.directory.mkdir(parents=True, exist_ok=True)
                    with locked_file(path, os.O_RDWR | os.O_CREAT) as descriptor:
                        os.utime(descriptor)
                        killpoint("pin.touched")
                        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                            os.fsync(descriptor)
                            fsync_directory(self.directory)
                            fsync_directory(self.directory.parent)
                            return
        raise StoreError(f"cannot write {path}: it was removed {_ATTEMPTS} times while it was written")

    def remove(self, owner: str) -> None:
        """Take a pin back; one that is not there is fine. Raises like ``add``."""
        path = self._path(owner)
        with explained(path):
            path.unlink(missing_ok=True)
        self._drop_empty_directory()

    def live(self) -> list[str]:
        """Return the owners whose pins count, in order; expired pins are removed on the way."""
        limit = time.time() - PIN_DAYS * 86_400.0
        found, expired = [], False
        try:
            entries = sorted(os.scandir(self.directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self.directory}: the pins cannot be read: {error.strerror}") from error
        for entry in entries:
            with suppress(OSError):  # taken back a moment ago, or not ours to remove
                if entry.stat().st_mtime >= limit:
                    found.append(entry.name)
                    continue
                expired = True
                # Under the lock, for its owner may be renewing it.
                with locked_file(Path(entry.path), os.O_RDWR) as descriptor:
                    if os.fstat(descriptor).st_mtime < limit:
                        os.unlink(entry.path)
                    else:
                        found.append(entry.name)
        if expired:
            self._drop_empty_directory()
        return found

    def _drop_empty_directory(self) -> None:
        with suppress(OSError):
            self.directory.rmdir()

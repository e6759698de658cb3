"""One process per run key: an exclusive lock that the system releases when its holder dies."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regft_core.errors import RegftError, StoreError
from regft_core.io import explained

try:
    import fcntl
except ImportError as missing:
    raise RegftError(
        "regft runs on POSIX systems only (Linux, macOS): its run store needs file locks that the system releases "
        "when a process dies (Python's fcntl), and there are none here; on Windows, run it inside WSL"
    ) from missing

log = logging.getLogger(__name__)

#: Paths locked by this process and the thread that did it, to refuse a certain deadlock.
_held: dict[str, int] = {}


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if needed; waits for it. Raises ``OSError``."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:
        if not path.exists():
            raise
        descriptor = os.open(path, os.O_RDONLY)  # another user's; enough for a lock
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class KeyLock:
    """An exclusive ``flock`` on a file that stays (deleting lock files is a race of its own)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def _try(self) -> bool:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        except OSError as error:
            # Only a courtesy to who waits; a full disk must not stop a finished run from being read.
            log.debug("lock holder not noted in %s: %s", self.path, error)
        self._descriptor = descriptor
        _held[str(self.path)] = threading.get_ident()
        return True

    def holder(self) -> str:
        """Say who has, or last had, the lock."""
        try:
            known = json.loads(self.path.read_text())
            return f"process {known['pid']} on {known['host']} since {known['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def try_acquire(self) -> bool:
        """Take the lock if it is free; raises ``StoreError`` if the lock file cannot be made."""
        with explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self._try()

    def acquire(self, timeout: float | None = None) -> None:
        """Wait for the lock, ``timeout`` seconds at most (None: as long as it takes).

        Raises ``StoreError`` on time-out, and at once if this thread itself holds the lock.
        """
        start, pause, next_message = time.monotonic(), 0.02, 5.0
        while not self.try_acquire():
            if _held.get(str(self.path)) == threading.get_ident():
                raise StoreError(f"{self.path}: this thread has the run open already; close it first")
            waited = time.monotonic() - start
            if timeout is not None and waited >= timeout:
                raise StoreError(
                    f"{self.path}: still locked by {self.holder()} after {waited:.0f} s; "
                    "wait for that process, or end it: its lock goes with it and the run is resumed"
                )
            if waited >= next_message:
                log.warning("waiting for run %s, locked by %s", self.path.stem, self.holder())
                next_message = waited + 300.0
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if self._descriptor is not None:
            _held.pop(str(self.path), None)
            # Explicitly, because a forked child may still share the open file.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

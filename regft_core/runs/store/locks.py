"""One process per run key: an exclusive lock that the system releases when its holder dies.

A holder that neither dies nor works (its machine is frozen, or cut off from the store) would keep the lock for
good. So a holder renews the time of the lock file; who waits, and sees no renewal for ``LEASE_SECONDS``, takes the
lock over: the old file is renamed, so that the old holder, should it wake up, can tell that it has lost the lock.
Only intervals are compared, by the clock of the one who waits: clocks of machines may differ.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from regft_core.errors import RegftError, StoreError
from regft_core.io.write_errors import explained

try:
    import fcntl
except ImportError as missing:
    raise RegftError(
        "not-posix",
        "regft runs on POSIX systems only (Linux, macOS): its run store needs file locks that the system releases "
        "when a process dies (Python's fcntl), and there are none here; on Windows, run it inside WSL",
    ) from missing

log = logging.getLogger(__name__)

#: A holder renews its lock this often; one that did not for LEASE_SECONDS has lost it to whoever waits.
RENEW_SECONDS = 20.0
LEASE_SECONDS = 180.0


class Renewable(Protocol):
    """What shows, by the time of a file, that its process lives."""

    def renew(self) -> None:
        """Say that the holder is alive."""


#: Locks that this process holds, and whatever else it renews.
_renewed: set[Renewable] = set()
_renewing = threading.Lock()
_thread: threading.Thread | None = None


def _renew(what: Renewable) -> None:
    """Renew a lock from now on, in one thread for the whole process."""
    global _thread
    with _renewing:
        _renewed.add(what)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_keep_renewing, daemon=True, name="lock renewal")
            _thread.start()


def _keep_renewing() -> None:
    while True:
        time.sleep(RENEW_SECONDS)
        with _renewing:
            for what in list(_renewed):
                what.renew()


@contextmanager
def renewed(what: Renewable) -> Iterator[None]:
    """Renew ``what`` every ``RENEW_SECONDS`` inside the block."""
    _renew(what)
    try:
        yield
    finally:
        with _renewing:
            _renewed.discard(what)


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


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is (still) the one at ``path``."""
    try:
        there, ours = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev)


class KeyLock:
    """An exclusive ``flock`` on a file that stays (deleting lock files is a race of its own)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        #: The thread that holds it.
        self._thread = 0

    def _try(self) -> bool:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        if not _is_at(descriptor, self.path):
            os.close(descriptor)  # it was taken over between the two lines above: that file is nobody's lock
            return False
        holder: dict[str, object] = {"host": socket.gethostname(), "pid": os.getpid()}
        holder |= {"since": time.strftime("%Y-%m-%d %H:%M:%S"), "renewed_every": RENEW_SECONDS}
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        except OSError as error:
            # Only a courtesy to who waits; a full disk must not stop a finished run from being read.
            log.debug("lock holder not noted in %s: %s", self.path, error)
        self._descriptor = descriptor
        self._thread = _held[str(self.path)] = threading.get_ident()
        _renew(self)
        return True

    def renew(self) -> None:
        """Show that the holder lives; does nothing when the lock is not held."""
        descriptor = self._descriptor
        if descriptor is not None:
            with suppress(OSError):
                os.utime(descriptor)

    @property
    def lost(self) -> bool:
        """Whether another process has taken over what this one held, because it did not answer."""
        return self._descriptor is not None and not _is_at(self._descriptor, self.path)

    def _take_over(self, seen: os.stat_result) -> None:
        """Rename the file of a holder that does not answer, unless something happened to it since it was ``seen``."""
        with locked_file(self.path.with_name("takeover.lock")):
            now = os.stat(self.path)
            if (now.st_ino, now.st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns):
                log.warning(
                    "run %s: %s has not answered for %.0f s and loses its lock; should it wake up, what it trained "
                    "is discarded if it is there by then",
                    self.path.stem,
                    self.holder(),
                    LEASE_SECONDS,
                )
                os.rename(self.path, self.path.with_name(f"{self.path.name}.lost"))

    def _renews(self) -> bool:
        """Whether the holder renews its lock at all; those of earlier versions did not."""
        try:
            return "renewed_every" in json.loads(self.path.read_text())
        except (OSError, ValueError, TypeError):
            return False

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
        seen: os.stat_result | None = None
        changed = start
        while not self.try_acquire():
            if _held.get(str(self.path)) == threading.get_ident():
                raise StoreError(
                    "run-open-already", f"{self.path}: this thread has the run open already; close it first"
                )
            waited = time.monotonic() - start
            if timeout is not None and waited >= timeout:
                raise StoreError(
                    "store-locked",
                    f"{self.path}: still locked by {self.holder()} after {waited:.0f} s; "
                    "wait for that process, or end it: its lock goes with it and the run is resumed",
                )
            with suppress(FileNotFoundError):
                now = os.stat(self.path)
                if seen is None or (now.st_ino, now.st_mtime_ns) != (seen.st_ino, seen.st_mtime_ns):
                    seen, changed = now, time.monotonic()
                elif time.monotonic() - changed > LEASE_SECONDS and self._renews():
                    with explained(self.path):
                        self._take_over(seen)
                    continue
            if waited >= next_message:
                log.warning("waiting for run %s, locked by %s", self.path.stem, self.holder())
                next_message = waited + 300.0
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if self._descriptor is not None:
            with _renewing:
                _renewed.discard(self)
            # Also when it was lost: else this thread would be refused the run that another one has now. When
            # another thread of this process took it over, the entry is that one's.
            if _held.get(str(self.path)) == self._thread:
                del _held[str(self.path)]
            # Explicitly, because a forked child may still share the open file.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

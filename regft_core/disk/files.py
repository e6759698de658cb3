"""Files and directories that are either complete or absent, whatever kills the process. Needs a POSIX file system."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from regft_core.disk.canonical import json_text
from regft_core.errors import StoreError

_FULL = "the disk (or quota) is full: free space and run again; what was complete before is unharmed"
_NOT_ALLOWED = "no permission to write there: change the permissions or choose another directory"
#: What to do about each of them; the others may go away by themselves.
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "the file system is read-only: choose a writable directory",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.ENAMETOOLONG: "most file systems allow 255 bytes for a name: give task, method or directory a shorter one",
}
#: Those that are surely about writing; others may be about an input of the block.
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _refusal(error: Exception) -> OSError | None:
    """The ``OSError`` that ``error`` is or tells of: safetensors has an own type, and the number in its text."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error)) if type(error).__name__ == "SafetensorError" else None
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Re-raise any refusal of the operating system in the block as a ``StoreError`` about writing ``path``."""
    try:
        yield
    except Exception as error:
        if (refused := _refusal(error)) is None:
            raise
        advice = _ADVICE.get(refused.errno or 0, "what was complete before is unharmed; run again when it is mended")
        raise StoreError("cannot-write", f"cannot write {path}: {refused.strerror or error}; {advice}") from refused


#: Temporary names begin so. Those that are older than a day belong to a process that is gone.
TEMPORARY = ".tmp-"
LEFTOVER_SECONDS = 86_400.0


def temporary_name(target: Path) -> Path:
    """Return a name beside ``target`` that was not used before."""
    return target.parent / f"{TEMPORARY}{os.urandom(8).hex()}"


def sweep_stale(parent: Path) -> None:
    """Remove temporary names in ``parent`` that killed processes left."""
    with suppress(OSError):  # nothing there, or not ours to clean
        for path in parent.glob(f"{TEMPORARY}*"):
            with suppress(OSError):  # another process may be sweeping the same leftover
                if time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS:
                    remove(path)


def remove(path: Path) -> None:
    """Delete a file or a whole directory; what is already gone is fine. Raises ``OSError``."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def fsync(path: Path) -> None:
    """Make a file's content, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot flush a directory say EINVAL
            raise
    finally:
        os.close(descriptor)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary name whose file, complete and flushed, takes the place of ``target``; raises ``StoreError``."""
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent)
        temporary = temporary_name(target)
        try:
            yield temporary
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync(target.parent)


def write_text(path: Path | str, text: str) -> None:
    """Write a UTF-8 text file atomically, creating its directory; raises ``StoreError`` (disk full, read-only)."""
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
        fsync(temporary)


def write_json(path: Path | str, value: Any) -> None:
    """Write a file of ``json_text`` atomically; raises as both."""
    write_text(path, json_text(value))


def fill_in(path: Path | str, content: bytes) -> None:
    """Write a file of an ``atomic_directory``, which makes it durable, and directories on the way."""
    with explained(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)


@contextmanager
def atomic_directory(target: Path | str, temporary: Path | None = None) -> Iterator[Path]:
    """Yield an empty directory (at ``temporary``) that becomes ``target`` unless an error ends the block."""
    target = Path(target)
    temporary = temporary_name(target) if temporary is None else temporary
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent)
        remove(temporary)
        temporary.mkdir(parents=True)
    try:
        try:
            yield temporary
        except Exception as error:
            if (refused := _refusal(error)) is None or refused.errno not in _WRITING:
                raise
            with explained(target):
                raise
        with explained(target):
            for parent, _, names in os.walk(temporary):
                for path in (*(Path(parent, name) for name in names), Path(parent)):
                    fsync(path)
            # ``target`` is the old directory, absent for an instant, or the new one, never mixed.
            old = temporary_name(target)
            with suppress(FileNotFoundError):
                os.rename(target, old)
            os.rename(temporary, target)
            fsync(target.parent)
        with suppress(OSError):  # another process may be sweeping it: it is as old as what it was
            remove(old)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise

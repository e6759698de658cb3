"""Files and directories that are either complete or absent, whatever kills the process.

Every write goes to a temporary name beside its target, is flushed to the disk, and is renamed into place; the parent
directory is flushed last. What a killed process leaves behind is removed a day later, with the next write of the same
target. Needs a POSIX file system. New files have the rights of the umask.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from regft_core.errors import StoreError
from regft_core.io.canonical import json_text

# ------------------------------------------------------------------------------- refusals to write

#: What to do about each of them; the others may go away by themselves.
_ADVICE = {
    errno.ENOSPC: "the disk (or quota) is full: free space and run again; what was complete before is unharmed",
    errno.EDQUOT: "the disk (or quota) is full: free space and run again; what was complete before is unharmed",
    errno.EROFS: "the file system is read-only: choose a writable directory",
    errno.EACCES: "no permission to write there: change the permissions or choose another directory",
    errno.EPERM: "no permission to write there: change the permissions or choose another directory",
    errno.EFBIG: "the file would exceed the allowed file size (see `ulimit -f`)",
    errno.ENAMETOOLONG: "most file systems allow 255 bytes for a name, and some of them are needed for endings: give "
    "the task, the method or the directory a shorter name",
}
#: Those that are surely about writing; others may be about an input of the block.
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


def _explain(error: OSError, path: Path | str) -> StoreError:
    advice = _ADVICE.get(error.errno or 0, "what was complete before is unharmed; run again when the cause is gone")
    return StoreError("cannot-write", f"cannot write {path}: {error.strerror or error}; {advice}")


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
        raise _explain(refused, path) from refused


def may_not_write(error: StoreError) -> bool:
    """Whether this is ``explained``'s error about a place that one may only read."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


# -------------------------------------------------------------------------------- temporary names

#: Temporary names that are older belong to a process that is gone.
LEFTOVER_SECONDS = 86_400.0


def _stem(name: str) -> str:
    # A name has 255 bytes at most, and a target may use all of them; the ending needs some.
    return os.fsencode(name)[:200].decode("utf-8", "ignore")


def temporary_name(target: Path) -> Path:
    """Return a name beside ``target``, not used before, that tells for which target it is."""
    return target.parent / f".{_stem(target.name)}.tmp-{os.urandom(8).hex()}"


def sweep_stale(parent: Path, prefix: str) -> None:
    """Remove temporary names in ``parent``, for targets that start with ``prefix``, which killed processes left."""
    with suppress(OSError):  # nothing there, or not ours to clean
        for path in parent.glob(f".{glob.escape(_stem(prefix))}*.tmp-*"):
            with suppress(OSError):  # another process may be sweeping the same leftover
                if time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS:
                    remove(path)


def remove(path: Path) -> None:
    """Delete a file or a whole directory; what is already gone is fine. Raises ``OSError``."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------- durability


def fsync_file(path: Path) -> None:
    """Make a file's content durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    try:
        fsync_file(path)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot flush a directory say EINVAL
            raise


def fsync_tree(directory: Path) -> None:
    """Make every file and every name below ``directory`` durable."""
    for parent, _, names in os.walk(directory):
        for name in names:
            fsync_file(Path(parent, name))
        fsync_directory(Path(parent))


# ------------------------------------------------------------------------------------------ files


def _write_new(path: Path, content: bytes, *, flush: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if flush:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path, which takes the place of ``target`` at the end; on an error nothing of it stays."""
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent, target.name)
    temporary = temporary_name(target)
    try:
        yield temporary
        with explained(target):
            os.replace(temporary, target)
            fsync_directory(target.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path | str, content: bytes) -> None:
    """Write a file atomically, creating its directory; raises ``StoreError`` (disk full, read-only)."""
    with _replacing(Path(path)) as temporary, explained(path):
        _write_new(temporary, content, flush=True)


def write_text(path: Path | str, text: str) -> None:
    """Write a UTF-8 text file atomically; raises ``StoreError``."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path | str, value: Any) -> None:
    """Write a file of ``json_text`` atomically.

    Raises ``StoreError`` when it cannot be written, and like ``json_text`` (nothing is written then).
    """
    write_text(path, json_text(value))


@contextmanager
def atomic_file(target: Path | str) -> Iterator[IO[str]]:
    """Yield a UTF-8 text file (no newline translation) that becomes ``target`` when the block ends without an error.

    On an error nothing of it stays and the old ``target`` is untouched. Raises ``StoreError``.
    """
    target = Path(target)
    with _replacing(target) as temporary:
        with explained(target):
            file = open(temporary, "x", encoding="utf-8", newline="")  # noqa: SIM115 - closed before it is renamed
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno in _WRITING:
                raise _explain(error, target) from error
            raise
        finally:
            with suppress(OSError):
                file.close()


def fill_in(path: Path | str, content: bytes) -> None:
    """Write a new file of a directory that nobody sees yet, creating directories on the way; raises ``StoreError``.

    It is neither atomic nor durable: the caller uses ``fsync_tree`` before it renames the directory into place.
    """
    target = Path(path)
    with explained(target):
        try:
            _write_new(target, content, flush=False)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_new(target, content, flush=False)


# ------------------------------------------------------------------------------------ directories


def _exchange(one: Path, other: Path) -> bool:
    # renameat2(RENAME_EXCHANGE) swaps two names in one step; glibc >= 2.28 on most local file systems.
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    at_fdcwd, exchange = -100, 2
    return renameat2(at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(other), exchange) == 0


def replace_directory(temporary: Path, target: Path) -> None:
    """Put the complete directory ``temporary`` instead of ``target`` and drop the old one.

    Where the system can exchange two names in one step, ``target`` is at every moment either
    the old or the new directory; elsewhere it is absent for an instant, never mixed.
    """
    with explained(target):
        old = temporary
        if not target.exists():
            os.rename(temporary, target)
        elif not _exchange(temporary, target):
            old = temporary_name(target)
            os.rename(target, old)
            os.rename(temporary, target)
        fsync_directory(target.parent)
        remove(old)


def claim_directory(temporary: Path, target: Path) -> bool:
    """Put ``temporary`` at ``target`` if nothing is there; return whether it did. Of several, one succeeds."""
    with explained(target):
        try:
            os.rename(temporary, target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        fsync_directory(target.parent)
    return True


@contextmanager
def atomic_directory(target: Path | str) -> Iterator[Path]:
    """Yield an empty directory that becomes ``target`` when the block ends without an error.

    On an error nothing of it stays and the old ``target`` is untouched. Leftovers of killed
    processes are removed on the way in. Raises ``StoreError``.
    """
    target = Path(target)
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent, target.name)
        temporary = temporary_name(target)
        temporary.mkdir()
    try:
        try:
            yield temporary
        except Exception as error:
            refused = _refusal(error)
            if refused is not None and refused.errno in _WRITING:
                raise _explain(refused, target) from refused
            raise
        with explained(target):
            fsync_tree(temporary)
        replace_directory(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise

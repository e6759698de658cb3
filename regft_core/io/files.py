"""Files that are either complete or absent, whatever kills the process.

Every write goes to a temporary name beside its target, is flushed to the disk, and is renamed
into place; the parent directory is flushed last. Needs a POSIX file system.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from regft_core.io.canonical import json_text
from regft_core.io.owned_names import sweep_stale, temporary_name
from regft_core.io.write_errors import explain_write_error, explained


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot flush a directory say EINVAL
            raise
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make a file's content durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path | str, content: bytes) -> None:
    """Write a file atomically, creating its directory; raises ``StoreError`` (disk full, read-only)."""
    target = Path(path)
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent, target.name)
        temporary = temporary_name(target)
        try:
            _write_new(temporary, content, flush=True)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync_directory(target.parent)


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


def fill_in(path: Path | str, content: bytes) -> None:
    """Write a new file of a directory that nobody sees yet, creating directories on the way; raises ``StoreError``.

    It is neither atomic nor durable: who fills a directory calls ``fsync_tree`` before renaming it into place.
    """
    target = Path(path)
    with explained(target):
        try:
            _write_new(target, content, flush=False)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_new(target, content, flush=False)


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
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent, target.name)
        temporary = temporary_name(target)
        file = open(temporary, "x", encoding="utf-8", newline="")  # noqa: SIM115 - closed before it is renamed
    try:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
                raise explain_write_error(error, target) from error
            raise
        finally:
            with suppress(OSError):
                file.close()
        with explained(target):
            os.replace(temporary, target)
            fsync_directory(target.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise

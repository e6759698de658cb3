"""Directories that are either complete or absent, whatever kills the process; see ``files``."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regft_core.io.files import fsync_directory, fsync_file
from regft_core.io.owned_names import remove, sweep_stale, temporary_name
from regft_core.io.write_errors import explain_write_error, explained, refusal


def fsync_tree(directory: Path) -> None:
    """Make every file and every name below ``directory`` durable."""
    for parent, _, names in os.walk(directory):
        for name in names:
            fsync_file(Path(parent, name))
        fsync_directory(Path(parent))


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
        if not target.exists():
            os.rename(temporary, target)
            old = None
        elif _exchange(temporary, target):
            old = temporary
        else:
            old = temporary_name(target)
            os.rename(target, old)
            os.rename(temporary, target)
        fsync_directory(target.parent)
        if old is not None:
            remove(old)


def claim_directory(temporary: Path, target: Path) -> bool:
    """Put ``temporary`` at ``target`` if nothing is there; says whether it did. Of several, one succeeds."""
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
            # Only what is surely a refusal to write; a missing input of the block is its own matter.
            refused = refusal(error)
            if refused is not None and refused.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
                raise explain_write_error(refused, target) from refused
            raise
        with explained(target):
            fsync_tree(temporary)
        replace_directory(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise

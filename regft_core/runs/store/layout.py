"""Where the runs of a store lie, and the lock of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock

KEY = re.compile(r"[0-9a-f]{64}")
PARTIAL, DAMAGED = ".partial", ".damaged"


def directory(store: Path, key: str) -> Path:
    """Return where the complete run of ``key`` is, or would be; raises ``ValueError`` for no key."""
    if not KEY.fullmatch(key):
        raise ValueError(f"{key!r} is not a run key (64 hexadecimal digits)")
    return store / "runs" / key[:2] / key


def lock_of(store: Path, key: str) -> BaseFileLock:
    """Return the lock of ``key``, not acquired. The system releases it when its holder dies."""
    # No fallback to a file that merely exists: it would outlive its process.
    return FileLock(directory(store, key).with_name(f"{key}.lock"), fallback_to_soft=False)


def directories(store: Path, suffix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield key and directory of all complete runs, or of those beside them with this suffix, in order."""
    for path in sorted((store / "runs").glob(f"[0-9a-f][0-9a-f]/*{suffix}")):
        key = path.name.removesuffix(suffix)
        if KEY.fullmatch(key) and path.is_dir():
            yield key, path

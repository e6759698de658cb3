"""Values as JSON with one text each, hashes of texts and files, and states of files that tell whether one was written.

Times of change that nobody can set (``ctime``) are compared, so an edit that keeps size and time is seen too.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


def _plain(value: Any) -> Any:
    """Return what ``json`` does not know as what it knows."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value; convert it to str, int, float, list or dict")


def canonical_json(value: Any) -> str:
    """Return the one text that stands for ``value``: sorted keys, no spaces, tuples as lists.

    Raises ``ValueError`` for NaN and infinities, ``TypeError`` for anything JSON cannot hold.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def json_text(value: Any) -> str:
    """Readable JSON: sorted keys, two spaces, final newline; raises as ``canonical_json``."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False, default=_plain) + "\n"


def sha256_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_json(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of ``value``, the key of what it determines: equal values share it."""
    return sha256_text(canonical_json(value))


def sha256_file(path: Path | str) -> str:
    """Return the SHA-256 of a file's content; raises ``OSError`` when it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------------------------------------- states of files

#: Clocks of file systems stand still for some milliseconds: what is this young may change once
#: more without a trace in its times.
RACY_NS = 100_000_000


class FileState(NamedTuple):
    """A file (or a folder's list of names) and what tells whether it was written since."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def file_state(path: str) -> FileState | None:
    """Return the state of a file, or of a folder, which changes with its list of names; None for anything else."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    times = status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    if stat.S_ISDIR(status.st_mode):
        return FileState(path, 0, *times)
    return FileState(path, status.st_size, *times) if stat.S_ISREG(status.st_mode) else None


def settled(state: FileState | None) -> bool:
    """Whether an edit would show in the state: it is not too young for the clock of its file system."""
    return state is None or max(state.mtime_ns, state.ctime_ns) + RACY_NS < time.time_ns()


_hashes: dict[str, tuple[FileState, str]] = {}


def content_sha256(path: Path | str) -> str:
    """``sha256_file``, which is asked again only when the file was written since; raises ``OSError`` alike."""
    name = os.fspath(path)
    state = file_state(name)
    hashed = _hashes.get(name)
    if hashed is not None and hashed[0] == state:
        return hashed[1]
    sha256 = sha256_file(name)
    if state is not None and settled(state) and file_state(name) == state:
        _hashes[name] = state, sha256
    return sha256

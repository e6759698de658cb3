"""Kinds of paths, and states of files that tell whether one was written since: by ``ctime``, which nobody can set."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from regft_core.disk.canonical import sha256_file


def expand(root: Path, text: str) -> Path:
    """Return ``text`` as a path below ``root``, ``~`` expanded; ValueError for an unknown home directory or NUL."""
    if "\0" in text:
        raise ValueError("holds the NUL character")
    try:
        return root / Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"'{Path(text).parts[0]}' is not a known home directory") from None


def what_is(path: Path) -> str | None:
    """Describe what is at ``path``, links followed: ``a file``, why it cannot be looked up; None for nothing."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return f"a link to {path.readlink()}, which does not exist" if path.is_symlink() else None
    except (OSError, ValueError) as error:  # too long, a loop of links, no permission, NUL
        return f"unreadable ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISREG(mode):
        return "a file"
    return "a directory" if stat.S_ISDIR(mode) else "neither a file nor a directory"


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
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return None
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return FileState(path, size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


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

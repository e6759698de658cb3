"""Paths as configurations give them: ``~`` expanded, and never a traceback for an odd one."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def expand(root: Path, text: str) -> Path:
    """``text`` as a path: ``~`` expanded, relative ones taken from ``root``.

    Raises ValueError, with the reason, for a home directory that cannot be found and for NUL characters.
    """
    if "\0" in text:
        raise ValueError("holds the NUL character")
    try:
        return root / Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"'{Path(text).parts[0]}' is not a known home directory") from None


def what_is(path: Path) -> str | None:
    """Describe what is at ``path``, in words, or None for nothing: ``a file``, ``a directory``, ``a named pipe``.

    Links are followed. A path that cannot even be looked up is described by the reason.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return f"a link to {path.readlink()}, which does not exist" if path.is_symlink() else None
    except (OSError, ValueError) as error:  # too long, a loop of links, no permission, NUL
        return f"unreadable ({getattr(error, 'strerror', None) or error})"
    kinds = {
        stat.S_ISREG: "a file",
        stat.S_ISDIR: "a directory",
        stat.S_ISFIFO: "a named pipe",
        stat.S_ISSOCK: "a socket",
    }
    return next((words for test, words in kinds.items() if test(mode)), "a device")


def cache_folder() -> Path:
    """Return the folder of this host's caches: ``$REGFT_CACHE``, else ``regft`` below the user's cache folder."""
    folder = os.environ.get("REGFT_CACHE")
    if folder:
        return Path(folder).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "regft"

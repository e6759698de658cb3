"""What a process has taken in besides modules: installed packages, and the data files beside the code.

Python does not say what of them is in memory. What was installed or written after the process began may not be what it
computes with, so a result would be filed under another's key. As with modules (``guard``), what it met first counts.
"""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Mapping
from contextlib import suppress

import regft_core
from regft_core.io.file_states import FileState

#: The clock that stamps files may be this much behind the one that programs read.
CLOCK_NS = 10_000_000

#: Distribution -> version, and path of a data file -> SHA-256, as this process met them first.
_packages: dict[str, str | None] = {}
_files: dict[str, str] = {}


def since_the_start(changed_ns: int) -> bool:
    """Whether a file with this time of change was written after this process began.

    A time in the future comes from another machine's clock and says nothing.
    """
    return regft_core.LOADED_AT_NS - CLOCK_NS <= changed_ns <= time.time_ns()


def other_packages(versions: Mapping[str, str | None]) -> list[str]:
    """Those of the packages that were installed, replaced or removed after this process began."""
    found = []
    for name, version in versions.items():
        if name not in _packages and not (version is not None and since_the_start(_installed_ns(name))):
            _packages[name] = version
        if name not in _packages or _packages[name] != version:
            found.append(name)
    return found


def _installed_ns(distribution: str) -> int:
    """When a distribution was installed; 0 where that cannot be told."""
    with suppress(importlib.metadata.PackageNotFoundError, OSError, TypeError):
        # The folder with its metadata, which is made anew with every version.
        status = os.stat(getattr(importlib.metadata.distribution(distribution), "_path", ""))
        return max(status.st_ctime_ns, status.st_mtime_ns)
    return 0


def other_files(files: Mapping[str, tuple[FileState | None, str]]) -> list[str]:
    """Those of the data files (path -> state and SHA-256) that were written after this process began."""
    found = []
    for path, (state, sha256) in files.items():
        young = state is None or since_the_start(max(state.ctime_ns, state.mtime_ns))
        if path not in _files and not young:
            _files[path] = sha256
        if _files.get(path) != sha256:
            found.append(path)
    return found

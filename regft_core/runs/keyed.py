"""Folders that say what they were made from, so that nothing is made twice.

``key.json`` in a folder below ``work/`` has the keys of its content, as the plan gives them, and the hash of every
other file. A folder whose keys are those of the plan and whose files are as written is left alone,
whether a stage or ``dvc checkout`` put it there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import write_json
from regft_core.disk.reading import read_json
from regft_core.errors import StoreError

FILE = "key.json"
#: Larger files are compared by size only: the keys of runs have the content of the rows in them.
HASHED_BYTES = 16_000_000


def seal(folder: Path, keys: Any) -> None:
    """Write ``key.json`` into a folder whose other files are complete; raises StoreError."""
    write_json(folder / FILE, {"keys": keys, "files": dict(_files(folder))})


def is_current(folder: Path, keys: Any) -> bool:
    """Whether the folder was made from these keys, and nothing in it was changed or lost since."""
    with suppress(StoreError, OSError, KeyError, TypeError):
        written = read_json(folder / FILE)
        return bool(written["keys"] == keys and written["files"] == dict(_files(folder)))
    return False


def keys_of(folder: Path) -> Any:
    """The keys that a folder was made from; None where it does not say."""
    with suppress(StoreError, KeyError, TypeError):
        return read_json(folder / FILE)["keys"]
    return None


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """Name below the folder -> its hash, or its size where it is large, of every file but ``key.json``."""
    start = len(os.fspath(folder)) + 1
    for parent, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            path = os.path.join(parent, name)
            if path[start:] != FILE:
                size = os.path.getsize(path)
                yield path[start:], sha256_file(path) if size <= HASHED_BYTES else f"{size} bytes"

"""JSON files read, and why a file could not be."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from regft_core.errors import StoreError

#: The caller may not, or the machine cannot at the moment; unlike a missing file or a bad disk block.
_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE})


class Unreadable(StoreError):
    """The system refuses to read a file now, which says nothing about what is in it."""


def unless_refused(error: OSError, path: Path | str) -> None:
    """Raise ``Unreadable`` when the error is about who reads; return when it is about the file."""
    if error.errno in _REFUSALS:
        raise Unreadable(
            "cannot-read",
            f"{path}: cannot be read: {error.strerror}; make it readable for this user (or run again when the "
            "machine can), nothing is known to be damaged",
        ) from error


def read_json(path: Path | str) -> Any:
    """Return a JSON file's value; raises ``StoreError`` naming the file when it is not readable JSON."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise StoreError("file-missing", f"{path}: no such file\n    -> run `dvc repro`, which writes it") from error
    except OSError as error:
        unless_refused(error, path)
        raise StoreError(
            "cannot-read", f"{path}: cannot be read: {error.strerror or error}\n    -> check the file's permissions"
        ) from error
    try:
        return json.loads(content)
    except ValueError as error:
        raise StoreError(
            "not-json", f"{path}: cannot be read as JSON: {error}\n    -> run the stage that writes it again"
        ) from error

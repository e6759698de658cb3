"""Refusals to write, in words that say what to do."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regft_core.errors import StoreError


def explain_write_error(error: OSError, path: Path | str) -> StoreError:
    """Turn the operating system's refusal to write into a message that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "the disk (or quota) is full: free space and run again; what was complete before is unharmed"
    elif error.errno == errno.EROFS:
        advice = "the file system is read-only: choose a writable directory"
    elif error.errno in (errno.EACCES, errno.EPERM):
        advice = "no permission to write there: change the permissions or choose another directory"
    elif error.errno == errno.EFBIG:
        advice = "the file would exceed the allowed file size (see `ulimit -f`)"
    elif error.errno == errno.ENAMETOOLONG:
        longest = max((part for part in Path(path).parts), key=lambda part: len(os.fsencode(part)), default="")
        size = len(os.fsencode(longest))
        advice = (
            f"the longest name in this path has {size} bytes, most file systems allow 255, and some of them are "
            "needed for endings: give the task, the method or the directory a shorter name"
        )
    else:
        advice = "what was complete before is unharmed; run again when the cause is gone"
    return StoreError("cannot-write", f"cannot write {path}: {error.strerror or error}; {advice}")


def may_not_write(error: StoreError) -> bool:
    """Whether this is ``explained``'s error about a place that one may only read."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Re-raise any refusal of the operating system in the block as a ``StoreError`` about writing ``path``."""
    try:
        yield
    except Exception as error:
        if (refused := refusal(error)) is None:
            raise
        raise explain_write_error(refused, path) from refused


def refusal(error: Exception) -> OSError | None:
    """The ``OSError`` that ``error`` is or tells of: safetensors has an own type, and the number in its text."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error)) if type(error).__name__ == "SafetensorError" else None
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None

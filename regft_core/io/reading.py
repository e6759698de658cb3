"""JSON files read, by the one rule for all that regft did not just write itself: the store, ``work/``, exports.

What is refused is one ``StoreError`` with the code ``damaged-json``, so that no reader needs a list of exceptions.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from regft_core.errors import StoreError

M = TypeVar("M", bound=BaseModel)

#: The caller may not, or the machine cannot at the moment; unlike a missing file or a bad disk block.
_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE})
_NAMES: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


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


def read_json(path: Path | str, shape: type = object) -> Any:
    """Return the value of a JSON file.

    Args:
        shape: the type that the value must have (``dict``, ``list``).

    Raises:
        StoreError: ``file-missing``; ``damaged-json`` for everything about its content, see ``parse_json``, and for
            what is no file (a link to itself, a folder, a pipe).
        Unreadable: the system refuses (``cannot-read``): the file may be intact.
    """
    try:
        content = _content(path)
    except FileNotFoundError as error:
        raise StoreError("file-missing", f"{path}: no such file\n    -> run `dvc repro`, which writes it") from error
    except (OSError, ValueError) as error:  # ValueError: a name with the NUL character
        if isinstance(error, OSError):
            unless_refused(error, path)
        raise _damaged(path, getattr(error, "strerror", None) or str(error)) from error
    return parse_json(content, path, shape)


def read_record(path: Path | str, record: type[M]) -> M:
    """Return a JSON file as an instance of ``record``; raises as ``read_json``, also for what does not validate."""
    value = read_json(path)
    try:
        return record.model_validate(value)
    except ValidationError as error:
        raise _damaged(path, validation_text(error)) from error


def parse_json(content: bytes | str, path: Path | str, shape: type = object) -> Any:
    """Return the value of JSON ``content``, which was read from ``path``.

    Raises:
        StoreError: ``damaged-json`` for what is not JSON in UTF-8, is nested too deeply, holds a number that is not
            finite or half a surrogate pair, or is not of type ``shape``.
    """
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        value = json.loads(text, parse_constant=_not_finite)
        # Writing refuses what reading accepts: numbers that are too large, and half a surrogate pair.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise _damaged(path, "is nested too deeply") from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(value, shape):
        raise _damaged(path, f"holds {_NAMES[type(value)]}, expected {_NAMES[shape]}")
    return value


def validation_text(error: ValidationError) -> str:
    """The first mistakes with their keys (``runs[2].cost.train_seconds``)."""
    mistakes = [f"{_key(mistake['loc'])}: {mistake['msg']}" for mistake in error.errors(include_url=False)]
    return "; ".join(mistakes[:3]) + (f" (and {len(mistakes) - 3} more)" if len(mistakes) > 3 else "")


def _key(place: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".") or "the file"


def _damaged(path: Path | str, reason: str) -> StoreError:
    return StoreError(
        "damaged-json", f"{path}: cannot be read as JSON: {reason}\n    -> write it again with the command that made it"
    )


def _content(path: Path | str) -> bytes:
    # Without waiting: a pipe would keep the reader for ever, a device has no end.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read()


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"holds {text}, which JSON does not have")

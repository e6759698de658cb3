"""JSON files read by one rule, for all that regft did not just write itself: the store, ``work/``, exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from regft_core.errors import StoreError

M = TypeVar("M", bound=BaseModel)


class Unreadable(StoreError):
    """The system refuses to read a file now, which says nothing about what is in it."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        what = f"{path}: cannot be read: {error.strerror}; make it readable, or run again when the machine can"
        super().__init__("cannot-read", what)


def read_json(path: Path | str, shape: type = object) -> Any:
    """Return the value of a JSON file, of the type ``shape`` (``dict``, ``list``).

    Raises StoreError (``file-missing``; ``damaged-json`` for what is not JSON in UTF-8, is nested too deeply, holds NaN
    or half of a surrogate pair, or is of another type), Unreadable when the system refuses.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise StoreError("file-missing", f"{path}: no such file\n    -> run `dvc repro`, which writes it") from error
    except OSError as error:
        raise Unreadable(path, error) from error
    try:
        text = content.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_not_finite)
        if "\\ud" in text.lower():  # half of a surrogate pair is read, and could not be written (SECURITY.md)
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(value, shape):
        raise _damaged(path, f"holds {type(value).__name__}, expected {shape.__name__}")
    return value


def read_record(path: Path | str, record: type[M]) -> M:
    """Return a JSON file as an instance of ``record``; raises as ``read_json``, also for what does not validate."""
    value = read_json(path)
    try:
        return record.model_validate(value)
    except ValidationError as error:
        raise _damaged(path, validation_text(error)) from error


def validation_text(error: ValidationError) -> str:
    """The first mistakes with their keys (``runs[2].cost.train_seconds``)."""
    mistakes = [f"{_key(mistake['loc'])}: {mistake['msg']}" for mistake in error.errors(include_url=False)]
    return "; ".join(mistakes[:3]) + (f" (and {len(mistakes) - 3} more)" if len(mistakes) > 3 else "")


def _key(place: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".") or "the file"


def _damaged(path: Path | str, reason: str) -> StoreError:
    hint = "write it again with the command that made it"
    return StoreError("damaged-json", f"{path}: cannot be read as JSON: {reason}\n    -> {hint}")


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"holds {text}, which JSON does not have")

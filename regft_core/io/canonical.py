"""Values as JSON with one text each, and hashes of texts and files.

JSON has sorted keys and refuses what JSON cannot say (NaN, infinities, non-string keys).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where}: JSON has no {value}; store null and say why in another field")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: key {key!r} is {type(key).__name__}; JSON keys are strings")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise TypeError(f"{where}: {type(value).__name__} is not a JSON value; convert it to str, int, float, list or dict")


def canonical_json(value: Any) -> str:
    """Return the one text that stands for ``value``: sorted keys, no spaces, tuples as lists.

    Raises ``ValueError`` for NaN and infinities, ``TypeError`` for anything JSON cannot hold
    (both name the place), so that two different values never share a text by accident.
    """
    return json.dumps(_plain(value, "value"), sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def json_text(value: Any) -> str:
    """Readable JSON: sorted keys, two spaces, final newline.

    Raises ``ValueError``/``TypeError`` for NaN and for values that are not JSON.
    """
    return json.dumps(_plain(value, "value"), sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def sha256_text(text: str) -> str:
    """Return the SHA-256 of ``text`` in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Return the SHA-256 of a file's content; raises ``OSError`` when it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

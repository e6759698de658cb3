"""Values as JSON with one text each, and hashes of texts and files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def _plain(value: Any) -> Any:
    """Return what ``json`` does not know as what it knows."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value; convert it to str, int, float, list or dict")


def canonical_json(value: Any) -> str:
    """Return the one text of a JSON value; ValueError for NaN and infinities, TypeError for what JSON cannot hold."""
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

"""Keeps what the package's files mean on disk, so that a process need not parse what an earlier one has parsed.

A file of ``<cache>/meanings`` stands for one module. It says of which bytes it is, and of which code that reads them.
For others it counts as absent. Deleting the folder loses time only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

from regft_core.io.host_cache import cache_folder
from regft_core.runs.identity.syntax import Meaning, Piece, sha256

#: Top-level packages whose modules are kept; a project's own files are few.
PACKAGES = ("regft_core", "stages")


@cache
def _reader() -> str:
    """What stands for the code that finds meanings, and for Python, whose parser it uses."""
    code = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("syntax.py", "bindings.py")]
    return sha256("\n".join([*code, sys.version]))


def _file(module: str) -> Path | None:
    if os.path.isabs(module) or module.partition(".")[0] not in PACKAGES:
        return None
    return cache_folder() / "meanings" / f"{module}.json"


def _stamp(module: str, source: bytes, is_package: bool) -> str:
    return sha256(f"{_reader()}\n{module}\n{is_package}\n{source!r}")


def recall(module: str, source: bytes, is_package: bool) -> Meaning | None:
    """What these bytes mean as this module; None where nobody kept it."""
    file = _file(module)
    with suppress(OSError, ValueError, KeyError, TypeError):
        if file is not None:
            kept = json.loads(file.read_bytes())
            if kept["of"] == _stamp(module, source, is_package):
                return _meaning(kept["meaning"])
    return None


def keep(module: str, source: bytes, is_package: bool, found: Meaning) -> None:
    """Keep what these bytes mean; where the cache cannot be written, nothing is kept."""
    file = _file(module)
    if file is None:
        return
    text = json.dumps({"of": _stamp(module, source, is_package), "meaning": asdict(found)})
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")  # not flushed: what a crash leaves is absent, or no JSON
        os.replace(temporary, file)


def _meaning(given: Mapping[str, Any]) -> Meaning:
    values = _values(Meaning, given)
    values["pieces"] = tuple(map(_piece, values["pieces"]))
    values["bound"] = {name: tuple(found) for name, found in values["bound"].items()}
    return Meaning(**values)


def _piece(given: Mapping[str, Any]) -> Piece:
    values = _values(Piece, given)
    values["said"] = {name: _piece(piece) for name, piece in values["said"].items()}
    return Piece(**values)


def _values(cls: type[Meaning | Piece], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record as JSON has them, with tuples again in place of lists."""
    found = {one.name: given[one.name] for one in fields(cls)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}

"""Rows that were brought onto this disk once: every split in a folder of its own, at one revision.

``.datasets/<set>/<config>/<revision>/<split>`` holds ``rows.parquet`` and ``source.json`` (where the rows are from,
their number and SHA-256). A folder appears complete or not at all, so a fetch that was cut off goes on with the next
split. Nothing of ``datasets``' own caches is read: offline they ignore revisions.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from regft_core.data.file_format import Table
from regft_core.data.table import parquet
from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import atomic_directory, write_json
from regft_core.errors import DataError
from regft_core.schema.tasks import HubSource, PackageSource

FOLDER = ".datasets"
_ROWS, _SOURCE = "rows.parquet", "source.json"
Fetched = HubSource | PackageSource


def split_folder(root: Path, source: Fetched, split: str) -> Path:
    """Where a split lies, or would lie."""
    return root.joinpath(FOLDER, *(quote(part, safe="") for part in (*source.place, split)))


def is_fetched(root: Path, source: Fetched, split: str) -> bool:
    """Whether a split is on this disk."""
    return (split_folder(root, source, split) / _SOURCE).is_file()


def store(root: Path, source: Fetched, split: str, table: Any, **said: str) -> None:
    """Write the rows of a split (a table of ``datasets`` or pandas). Raises StoreError when the disk refuses."""
    with atomic_directory(split_folder(root, source, split)) as folder:
        table.to_parquet(folder / _ROWS)
        said |= source.model_dump(mode="json") | {"split": split}
        write_json(folder / _SOURCE, {**said, "rows": len(table), "sha256": sha256_file(folder / _ROWS)})


def stored(root: Path, source: Fetched, split: str, where: str) -> Table:
    """Rows of a split that is on this disk. Raises DataError when they are not those that were fetched."""
    folder = split_folder(root, source, split)
    said = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
    content = (folder / _ROWS).read_bytes() if (folder / _ROWS).is_file() else b""
    if hashlib.sha256(content).hexdigest() != said["sha256"]:
        hint = f"delete {folder} and fetch it again (regft fetch)"
        raise DataError("damaged-file", f"{where}: {folder / _ROWS} is not what was fetched\n    -> {hint}")
    return replace(parquet(io.BytesIO(content)), header="the set")

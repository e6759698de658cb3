"""What the last sync mirrored, so that the next one need not open MLflow when nothing has changed since.

The stamp lies beside the database and names its state. A database that anybody else has written since, or another one
under its name, has another state, and the sync compares run by run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regft_core.errors import StoreError
from regft_core.io.canonical import sha256_text
from regft_core.io.files import write_json
from regft_core.io.reading import read_json
from regft_core.runs.code import installed
from regft_core.tracking.records import CellRecord, ReportRecord


def content(cells: Sequence[CellRecord], report: ReportRecord | None, place: Mapping[str, str]) -> str:
    """Digest of everything that a sync would write; times are left out, as a sync does not compare them.

    Args:
        place: where it would write, and with which notes.
    """
    parts: list[Any] = [sorted(place.items()), installed(["mlflow"]), report and report.digest]
    for cell in cells:
        parts.append((cell.cell, cell.name, cell.tags, cell.params, cell.scores, cell.datasets))
        parts += [(r.key, r.training, r.evaluation, r.tags, r.scores, r.evaluations, r.datasets) for r in cell.runs]
    return sha256_text(repr(parts))


class Stamp:
    """The stamp of one database."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.file = database.with_name(f"{database.name}.synced")

    def holds(self, mirrored: str) -> bool:
        """Whether the database is the one that was stamped with this content."""
        try:
            return self.database.is_file() and bool(read_json(self.file) == self._now(mirrored))
        except StoreError:
            return False

    def put(self, mirrored: str) -> None:
        """Stamp the closed database."""
        write_json(self.file, self._now(mirrored))

    def _now(self, mirrored: str) -> dict[str, Any]:
        files = (self.database, self.database.with_name(f"{self.database.name}-wal"))
        states = [(stat.st_size, stat.st_mtime_ns) for file in files if file.is_file() for stat in [file.stat()]]
        # An empty write-ahead log is there while somebody reads.
        return {"content": mirrored, "database": [list(state) for state in states if state[0]]}

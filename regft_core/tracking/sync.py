"""Makes MLflow show what ``work/`` holds; the only writer of ``mlflow.db``.

DVC restores a cached cell without running any code, so a run that logs while it trains leaves
holes. Here stages write files and this one function mirrors them: a run per (cell x seed) under
a parent per cell. A second sync adds nothing; what the files no longer say is tagged
``regft.status = superseded`` and goes to MLflow's state Deleted, from which it returns when the
files say it again; a deleted database comes back from the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regft_core.settings.grid import Cell
from regft_core.tracking.database import locked, open_mirror
from regft_core.tracking.reading import read_grid, read_report
from regft_core.tracking.reconcile import Reconciliation
from regft_core.tracking.source import source_tags
from regft_core.tracking.stamp import Stamp, content
from regft_core.tracking.view import experiment_tags


@dataclass(frozen=True)
class SyncResult:
    """How many MLflow runs (of seeds, cells and the report) a sync touched."""

    created: int
    updated: int
    unchanged: int
    superseded: int

    def __str__(self) -> str:
        return (
            f"MLflow mirror: {self.created} runs created, {self.updated} updated, "
            f"{self.unchanged} unchanged, {self.superseded} newly superseded"
        )


def sync(
    root: Path,
    cells: Iterable[Cell],
    seeds: Sequence[int],
    *,
    database: Path | None = None,
    artifacts: Path | None = None,
    experiment: str = "regft",
) -> SyncResult:
    """Mirror the grid's cells into MLflow.

    Args:
        root: project root, under which ``work/`` and ``reports/`` are read.
        cells, seeds: the grid; runs of anything else are superseded.
        database: SQLite file, ``<root>/mlflow.db`` by default.
        artifacts: directory of the runs' files, ``<root>/mlartifacts`` by default.
        experiment: name of the MLflow experiment.

    Raises:
        DataError: a file of ``work/`` is not what it should be.
        StoreError: the database cannot be read, or nothing can be written.
    """
    root = root.resolve()
    database, artifacts = (database or root / "mlflow.db").resolve(), (artifacts or root / "mlartifacts").resolve()
    with locked(database):
        # Read after the lock is taken: who waited must not write what it saw before.
        records, report = read_grid(root, cells, seeds), read_report(root)
        notes = experiment_tags(records)
        stamp, mirrored = Stamp(database), content(records, report, notes | {artifacts.as_uri(): experiment})
        if stamp.holds(mirrored):
            return SyncResult(0, 0, sum(1 + len(r.runs) for r in records) + (report is not None), 0)
        with open_mirror(database, artifacts, experiment) as mirror:
            work = Reconciliation(mirror, source_tags(root))
            work.load()
            for record in records:
                work.cell(record)
            if report is not None:
                work.report(report)
            work.finish()
            mirror.describe(notes)
        stamp.put(mirrored)
    return SyncResult(work.created, work.updated, work.unchanged, work.superseded)

"""The mirror's tables, read and written by SQLite alone.

MLflow takes two seconds to import and twenty to fifty milliseconds for a run that is written call by call. A sync
that finds nothing new needs neither, and one that writes knows everything about a run before it writes it. What is
read and written here is what MLflow's own tables have; where they are not the known ones, its client is used.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

#: Table -> all its columns.
COLUMNS: Mapping[str, Sequence[str]] = {
    "runs": [
        *("run_uuid", "name", "artifact_uri", "experiment_id", "source_type", "source_name", "entry_point_name"),
        *("user_id", "status", "start_time", "end_time", "deleted_time", "source_version", "lifecycle_stage"),
    ],
    "tags": ["key", "value", "run_uuid"],
    "params": ["key", "value", "run_uuid"],
    "metrics": ["key", "value", "timestamp", "step", "is_nan", "run_uuid"],
    "latest_metrics": ["key", "value", "timestamp", "step", "is_nan", "run_uuid"],
    "datasets": [
        *("dataset_uuid", "experiment_id", "name", "digest", "dataset_source_type", "dataset_source"),
        *("dataset_schema", "dataset_profile"),
    ],
    "inputs": ["input_uuid", "source_type", "source_id", "destination_type", "destination_id", "step"],
    "input_tags": ["input_uuid", "name", "value"],
}


@dataclass(frozen=True)
class KnownRun:
    """A run as the database has it; ``active``: searches find it (it is not in the state Deleted)."""

    run_id: str
    status: str
    active: bool
    start_time: int
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownExperiment:
    """An experiment as the database has it."""

    experiment_id: str
    location: str
    active: bool
    tags: Mapping[str, str]


class Tables:
    """The tables of one database file, until ``close``; its methods raise ``sqlite3.Error``."""

    def __init__(self, database: Path) -> None:
        self._connection = sqlite3.connect(database, timeout=20)
        self._statements = {
            table: f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            for table, columns in COLUMNS.items()
        }

    def close(self) -> None:
        """Close the file; what was not written by then is not."""
        self._connection.close()

    @cached_property
    def usable(self) -> bool:
        """Whether MLflow's tables are there, and are the known ones."""
        found = {
            table: {str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({table})")} for table in COLUMNS
        }
        return all(found[table] == set(columns) for table, columns in COLUMNS.items())

    def experiment(self, name: str) -> KnownExperiment | None:
        """The experiment of this name; None when there is none, or more than one."""
        query = "SELECT experiment_id, artifact_location, lifecycle_stage FROM experiments WHERE name = ?"
        with suppress(sqlite3.Error):  # no database of MLflow's
            rows = self._connection.execute(query, (name,)).fetchall()
            if len(rows) != 1:
                return None
            number, location, stage = rows[0]
            tags = dict(
                self._connection.execute("SELECT key, value FROM experiment_tags WHERE experiment_id = ?", (number,))
            )
            return KnownExperiment(str(number), str(location or "").rstrip("/"), stage == "active", tags)
        return None

    def runs(self, experiment_id: str) -> list[KnownRun]:
        """All runs of an experiment, the latest first."""
        query = (
            "SELECT run_uuid, status, lifecycle_stage = 'active', start_time FROM runs WHERE experiment_id = ? "
            "ORDER BY start_time DESC, run_uuid"
        )
        found = {
            row[0]: KnownRun(row[0], row[1], bool(row[2]), row[3])
            for row in self._connection.execute(query, (int(experiment_id),))
        }
        for run_id, key, value in self._of_runs("tags", "value", experiment_id):
            found[run_id].tags[key] = value
        for run_id, key, value in self._of_runs("params", "value", experiment_id):
            found[run_id].params[key] = value
        number = "CASE WHEN is_nan THEN NULL ELSE value END"
        for run_id, key, value in self._of_runs("latest_metrics", number, experiment_id):
            found[run_id].metrics[key] = math.nan if value is None else value
        return list(found.values())

    def _of_runs(self, table: str, value: str, experiment_id: str) -> Iterable[tuple[str, str, Any]]:
        query = (
            f"SELECT run_uuid, key, {value} FROM {table} "
            "WHERE run_uuid IN (SELECT run_uuid FROM runs WHERE experiment_id = ?)"
        )
        return self._connection.execute(query, (int(experiment_id),))

    def dataset(self, experiment_id: str, name: str, digest: str) -> str | None:
        """Identifier of a dataset that is there."""
        query = "SELECT dataset_uuid FROM datasets WHERE experiment_id = ? AND name = ? AND digest = ?"
        row = self._connection.execute(query, (int(experiment_id), name, digest)).fetchone()
        return None if row is None else str(row[0])

    def insert(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Insert rows in one transaction; columns that are not given are empty."""
        with self._connection:
            for table, columns in COLUMNS.items():
                values = rows.get(table, ())
                self._connection.executemany(
                    self._statements[table], [tuple(row.get(name) for name in columns) for row in values]
                )

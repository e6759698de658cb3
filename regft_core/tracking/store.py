"""Opens the MLflow database: one writer at a time, explicit addresses, schema made once."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regft_core.errors import StoreError
from regft_core.io import explained
from regft_core.runs.locks import KeyLock

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, Run, RunTag

#: Runs per page when all are listed.
PAGE = 5000
#: Limits of one MLflow ``log_batch`` call.
ENTITIES_PER_BATCH = 1000
PARAMS_PER_BATCH = 100


def database_uri(database: Path) -> str:
    """The address of the database. Always given explicitly: MLflow else picks up an old ./mlruns."""
    return f"sqlite:///{database.resolve()}"


def quiet_environment() -> None:
    """Keep MLflow from reporting its use to its makers, unless the user decided otherwise; before its import."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


@dataclass(frozen=True)
class Mirror:
    """The open database; everything written goes through here."""

    client: MlflowClient
    experiment_id: str

    def runs(self) -> list[Run]:
        """All runs of the experiment that the mirror made (and nobody deleted)."""
        found: list[Run] = []
        token: str | None = None
        while True:
            page = self.client.search_runs([self.experiment_id], max_results=PAGE, page_token=token)
            found += [run for run in page if "regft.kind" in run.data.tags]
            token = page.token
            if not token:
                return found

    def log(
        self, run_id: str, metrics: Sequence[Metric] = (), params: Sequence[Param] = (), tags: Sequence[RunTag] = ()
    ) -> None:
        """Write any number of values; the tags come with the last batch, so they also say that all is there."""
        metrics, params, tags = list(metrics), list(params), list(tags)
        while len(metrics) + len(params) + len(tags) > ENTITIES_PER_BATCH or len(params) > PARAMS_PER_BATCH:
            now, params = params[:PARAMS_PER_BATCH], params[PARAMS_PER_BATCH:]
            room = ENTITIES_PER_BATCH - len(now)
            self.client.log_batch(run_id, metrics=metrics[:room], params=now)
            metrics = metrics[room:]
        self.client.log_batch(run_id, metrics=metrics, params=params, tags=tags)


@contextmanager
def open_mirror(database: Path, artifacts: Path, experiment: str) -> Iterator[Mirror]:
    """Open (or create) the mirror; a second process waits until the first has finished.

    Raises:
        StoreError: the database cannot be read or written, or belongs to another place.
    """
    database, artifacts = database.resolve(), artifacts.resolve()
    lock = KeyLock(database.with_name(f"{database.name}.lock"))
    lock.acquire()
    try:
        with explained(artifacts):
            artifacts.mkdir(parents=True, exist_ok=True)
        with _opened(database) as client:
            yield Mirror(client, _experiment(client, database, artifacts, experiment))
    finally:
        lock.release()


@contextmanager
def _opened(database: Path) -> Iterator[MlflowClient]:
    quiet_environment()
    # The hundred lines about migrations that a new schema logs.
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    uri = database_uri(database)
    _forget(uri)
    try:
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        client.search_experiments(max_results=1)
        _prepare(database)
    except (MlflowException, SQLAlchemyError, sqlite3.Error) as error:
        raise StoreError(
            f"{database}: MLflow cannot open it: {_first_line(error)}\n    -> it is a mirror of work/: delete "
            f"{database.name}* and sync again, or keep it and run `mlflow db upgrade {uri}`"
        ) from error
    try:
        yield client
    except (MlflowException, SQLAlchemyError) as error:
        raise StoreError(
            f"{database}: MLflow refused a write: {_first_line(error)}\n    -> what was written is complete or "
            "will be written again; sync again when the cause is gone"
        ) from error
    finally:
        _close(database)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _prepare(database: Path) -> None:
    """Let readers (the UI) and the writer work at the same time: write-ahead log, where the disk allows it."""
    with suppress(sqlite3.OperationalError):
        connection = sqlite3.connect(database, timeout=20)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()


def _forget(uri: str) -> None:
    """Close what MLflow keeps open per address; it would write on into a database that was deleted meanwhile."""
    with suppress(AttributeError, ImportError):  # internals; without them only that case, in one process, is lost
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
        from mlflow.tracking._tracking_service import utils

        utils._tracking_store_registry._get_store_with_resolved_uri.cache_clear()
        engine = SqlAlchemyStore._engine_map.pop(uri, None)
        if engine is not None:
            engine.dispose()


def _close(database: Path) -> None:
    _forget(database_uri(database))
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(database, timeout=20)
        try:
            # Everything into the one file, so that copying it copies the mirror.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()


def _experiment(client: MlflowClient, database: Path, artifacts: Path, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        return client.create_experiment(name, artifact_location=artifacts.as_uri())
    if found.artifact_location.rstrip("/") != artifacts.as_uri():
        raise StoreError(
            f"{database}: its experiment '{name}' keeps files in {found.artifact_location}, not in {artifacts} "
            f"(was the project moved?)\n    -> it is a mirror of work/: delete {database.name}* and sync again"
        )
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)

"""Opens the MLflow database through MLflow's client: one writer at a time, explicit addresses, schema made once."""

from __future__ import annotations

import logging
import os
import shlex
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from regft_core.errors import StoreError
from regft_core.io.write_errors import explained
from regft_core.runs.store.locks import KeyLock
from regft_core.tracking.records import Point

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

log = logging.getLogger(__name__)

#: What the files no longer say: tagged, and in MLflow's state Deleted, where no plain search finds it.
CURRENT, SUPERSEDED = "current", "superseded"
#: Runs per page when all are listed.
PAGE = 5000


def database_uri(database: Path) -> str:
    """The address of the database. Always given explicitly: MLflow else picks up an old ./mlruns."""
    return f"sqlite:///{database.resolve()}"


def quiet_environment() -> None:
    """Keep MLflow from reporting its use to its makers, unless the user decided otherwise; before its import."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


class Mirror:
    """The open database; MLflow is imported, and the database opened, when something is first read or written.

    Args:
        database, artifacts: absolute.
        experiment: its name.
        opened: closes what is opened here.
    """

    def __init__(self, database: Path, artifacts: Path, experiment: str, opened: ExitStack) -> None:
        self.database, self.artifacts, self.experiment = database, artifacts, experiment
        self._opened = opened

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's own client.

        A database that came with a copied or moved project is set aside, with a warning, and a new one is made:
        MLflow keeps absolute addresses, so it would show and write the other project's files.

        Raises StoreError when MLflow cannot open the database.
        """
        client = self._opened.enter_context(_opened(self.database))
        found = client.get_experiment_by_name(self.experiment)
        if found is not None and found.artifact_location.rstrip("/") != self.artifacts.as_uri():
            self._opened.close()
            _move_away(self.database, self.artifacts, found.artifact_location)
            client = self._opened.enter_context(_opened(self.database))
        with explained(self.artifacts):
            self.artifacts.mkdir(parents=True, exist_ok=True)
        return client

    @cached_property
    def experiment_id(self) -> str:
        """Of the experiment, which is made if it is not there."""
        found = self.client.get_experiment_by_name(self.experiment)
        if found is None:
            return self.client.create_experiment(self.experiment, artifact_location=self.artifacts.as_uri())
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def runs(self) -> list[Run]:
        """All runs of the experiment that the mirror made; those that somebody else deleted are left out."""
        from mlflow.entities import ViewType

        found: list[Run] = []
        token: str | None = None
        while True:
            page = self.client.search_runs([self.experiment_id], "", ViewType.ALL, PAGE, page_token=token)
            found += [run for run in page if "regft.kind" in run.data.tags and (is_active(run) or _retired(run))]
            token = page.token
            if not token:
                return found

    def log(
        self,
        run_id: str,
        metrics: Sequence[Point] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Write any number of values; the client makes batches of them."""
        from mlflow.entities import Metric, Param, RunTag

        self.client.log_batch(
            run_id,
            [Metric(point.name, point.value, point.time, point.step) for point in metrics],
            [Param(key, value) for key, value in (params or {}).items()],
            [RunTag(key, value) for key, value in (tags or {}).items()],
        )

    def describe(self, wanted: Mapping[str, str]) -> None:
        """Give the experiment these tags, where they are others."""
        present = self.client.get_experiment(self.experiment_id).tags
        for key, value in wanted.items():
            if present.get(key) != value:
                self.client.set_experiment_tag(self.experiment_id, key, value)


def is_active(run: Run) -> bool:
    """Whether searches find it: it is not in MLflow's state Deleted."""
    return str(run.info.lifecycle_stage) == "active"


def _retired(run: Run) -> bool:
    return bool(run.data.tags.get("regft.status") == SUPERSEDED)


def folder_of(address: str) -> Path:
    """The folder of a ``file:`` address."""
    return Path(unquote(urlparse(address).path))


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Keep other processes from writing the mirror; a second one waits until the first has finished."""
    lock = KeyLock(database.with_name(f"{database.name}.lock"))
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def open_mirror(database: Path, artifacts: Path, experiment: str) -> Iterator[Mirror]:
    """Open (or create) the mirror, for a process that has ``locked`` it.

    Raises:
        StoreError: the database cannot be read or written.
    """
    with ExitStack() as opened:
        yield Mirror(database.resolve(), artifacts.resolve(), experiment, opened)


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
            "tracker-unreadable",
            f"{database}: MLflow cannot open it: {_first_line(error)}\n    -> it is a mirror of work/: delete "
            f"{database.name}* and sync again, or keep it and run `mlflow db upgrade {uri}`",
        ) from error
    try:
        yield client
    except (MlflowException, SQLAlchemyError) as error:
        raise StoreError(
            "tracker-refused",
            f"{database}: MLflow refused a write: {_first_line(error)}\n    -> what was written is complete or "
            "will be written again; sync again when the cause is gone",
        ) from error
    finally:
        _close(database)


def _move_away(database: Path, artifacts: Path, location: str) -> None:
    """Rename a closed database whose runs keep their files in ``location``, and the files that were copied with it."""
    number = 1
    while (aside := database.with_name(f"{database.name}.moved-{number}")).exists():
        number += 1
    files = artifacts.with_name(f"{artifacts.name}.moved-{number}")
    with explained(database):
        # The database last: it is what tells a sync that was killed in between to go on.
        if artifacts.is_dir() and any(artifacts.iterdir()) and not files.exists():
            artifacts.rename(files)
        for ending in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                database.with_name(database.name + ending).rename(aside.with_name(aside.name + ending))
        database.rename(aside)
    log.warning(
        "%s belongs to a project in %s (was this one copied or moved?): it is now %s%s, and a new one is made from "
        "work/. Nothing of it was deleted: notes, or runs that were not made by regft, are seen with "
        "`mlflow server --backend-store-uri %s`; delete what you do not need",
        database,
        folder_of(location).parent,
        aside.name,
        f", its files are in {files.name}" if files.exists() else "",
        shlex.quote(database_uri(aside)),
    )


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

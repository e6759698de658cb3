"""Opens the MLflow database: one writer at a time, explicit addresses, schema made once.

MLflow itself is opened when something must be written that only its client writes, or when the installed version has
not opened this database before; else SQLite is enough (``tables``).
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from regft_core.errors import StoreError
from regft_core.io import explained
from regft_core.runs.distributions import installed
from regft_core.runs.locks import KeyLock
from regft_core.tracking.bulk import Bulk
from regft_core.tracking.records import Point
from regft_core.tracking.tables import KnownExperiment, KnownRun, Tables

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

#: What the files no longer say: tagged, and in MLflow's state Deleted, where no plain search finds it.
CURRENT, SUPERSEDED = "current", "superseded"
#: Runs per page when all are listed.
PAGE = 5000
#: Tag of the experiment: the version of MLflow that has opened the database last, so its tables are those of this one.
OPENED_BY = "regft.mlflow"
#: Limits of one MLflow ``log_batch`` call.
ENTITIES_PER_BATCH = 1000
PARAMS_PER_BATCH = 100


def database_uri(database: Path) -> str:
    """The address of the database. Always given explicitly: MLflow else picks up an old ./mlruns."""
    return f"sqlite:///{database.resolve()}"


def quiet_environment() -> None:
    """Keep MLflow from reporting its use to its makers, unless the user decided otherwise; before its import."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


class Mirror:
    """The open database; everything written goes through here.

    Args:
        database, artifacts: absolute.
        experiment: its name.
        opened: closes what is opened here.
    """

    def __init__(self, database: Path, artifacts: Path, experiment: str, opened: ExitStack) -> None:
        self.database, self.artifacts, self.experiment = database, artifacts, experiment
        self._opened = opened
        self._tables: Tables | None = None

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's own client; raises StoreError when MLflow cannot open the database."""
        return self._opened.enter_context(_opened(self.database))

    @cached_property
    def experiment_id(self) -> str:
        """Of the experiment, which is made if it is not there."""
        known = self._known
        if known is not None:
            return known.experiment_id
        return _experiment(self.client, self.database, self.artifacts, self.experiment)

    @cached_property
    def _known(self) -> KnownExperiment | None:
        """The experiment, if the MLflow that is installed has opened it before and would do nothing to it now."""
        if not self.database.is_file():
            return None
        found = self._read().experiment(self.experiment)
        if (
            found is not None
            and found.active
            and found.location == self.artifacts.as_uri()
            and found.tags.get(OPENED_BY) == mlflow_version()
            and self._read().usable
        ):
            return found
        self._close_tables()  # they may be made now, or changed
        return None

    def _read(self) -> Tables:
        if self._tables is None:
            self._tables = Tables(self.database)
            self._opened.callback(self._close_tables)
        return self._tables

    def _close_tables(self) -> None:
        if self._tables is not None:
            self._tables.close()
        self._tables = None

    @cached_property
    def bulk(self) -> Bulk:
        """Writes whole runs at once."""
        experiment_id = self.experiment_id
        tables = self._read()
        made = Bulk(tables if tables.usable else None, experiment_id, self.artifacts.as_uri())
        self._opened.callback(made.flush)  # also when the sync is interrupted: what it has is complete
        return made

    def runs(self) -> list[KnownRun]:
        """All runs of the experiment that the mirror made; those that somebody else deleted are left out."""
        experiment_id = self.experiment_id
        found = self._read().runs(experiment_id) if self._read().usable else self._all_by_client()
        return [run for run in found if "regft.kind" in run.tags and (run.active or _retired(run))]

    def _all_by_client(self) -> list[KnownRun]:
        from mlflow.entities import ViewType

        found: list[KnownRun] = []
        token: str | None = None
        while True:
            page = self.client.search_runs([self.experiment_id], "", ViewType.ALL, PAGE, page_token=token)
            for run in page:
                info, data = run.info, run.data
                active = info.lifecycle_stage == "active"
                found.append(
                    KnownRun(info.run_id, info.status, active, info.start_time, data.tags, data.params, data.metrics)
                )
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
        """Write any number of values; the tags come with the last batch, so they also say that all is there."""
        from mlflow.entities import Metric, Param, RunTag

        numbers = [Metric(point.name, point.value, point.time, point.step) for point in metrics]
        texts = [Param(key, value) for key, value in (params or {}).items()]
        last = [RunTag(key, value) for key, value in (tags or {}).items()]
        while len(numbers) + len(texts) + len(last) > ENTITIES_PER_BATCH or len(texts) > PARAMS_PER_BATCH:
            now, texts = texts[:PARAMS_PER_BATCH], texts[PARAMS_PER_BATCH:]
            room = ENTITIES_PER_BATCH - len(now)
            self.client.log_batch(run_id, metrics=numbers[:room], params=now)
            numbers = numbers[room:]
        self.client.log_batch(run_id, metrics=numbers, params=texts, tags=last)

    def describe(self, wanted: Mapping[str, str]) -> None:
        """Give the experiment these tags, where they are others."""
        wanted = {**wanted, OPENED_BY: mlflow_version()}
        known = self._known
        present = self.client.get_experiment(self.experiment_id).tags if known is None else known.tags
        for key, value in wanted.items():
            if present.get(key) != value:
                self.client.set_experiment_tag(self.experiment_id, key, value)


def mlflow_version() -> str:
    """Of the installed MLflow, without importing it."""
    return installed(["mlflow"])["mlflow"] or "none"


def _retired(run: KnownRun) -> bool:
    return run.tags.get("regft.status") == SUPERSEDED


@contextmanager
def open_mirror(database: Path, artifacts: Path, experiment: str) -> Iterator[Mirror]:
    """Open (or create) the mirror; a second process waits until the first has finished.

    A database that came with a copied or moved project is set aside, with a warning, and a new
    one is made: MLflow keeps absolute addresses, so it would show and write the other project's files.

    Raises:
        StoreError: the database cannot be read or written, or belongs to another place.
    """
    database, artifacts = database.resolve(), artifacts.resolve()
    lock = KeyLock(database.with_name(f"{database.name}.lock"))
    lock.acquire()
    try:
        set_aside_foreign(database, artifacts, experiment)
        with explained(artifacts):
            artifacts.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            yield Mirror(database, artifacts, experiment, opened)
    except sqlite3.Error as error:
        raise _refused(database, error) from error
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
            "tracker-unreadable",
            f"{database}: MLflow cannot open it: {_first_line(error)}\n    -> it is a mirror of work/: delete "
            f"{database.name}* and sync again, or keep it and run `mlflow db upgrade {uri}`",
        ) from error
    try:
        yield client
    except (MlflowException, SQLAlchemyError) as error:
        raise _refused(database, error) from error
    finally:
        _close(database)


def _refused(database: Path, error: Exception) -> StoreError:
    return StoreError(
        "tracker-refused",
        f"{database}: MLflow refused a write: {_first_line(error)}\n    -> what was written is complete or "
        "will be written again; sync again when the cause is gone",
    )


def set_aside_foreign(database: Path, artifacts: Path, experiment: str) -> Path | None:
    """Rename a database whose runs keep their files elsewhere, and the files that were copied with it.

    Returns the database's new path; None when it is this project's, or not there.
    """
    location = _artifact_location(database, experiment)
    if location is None or location.rstrip("/") == artifacts.as_uri():
        return None
    _close(database)  # what is still in the write-ahead log belongs to it
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
        Path(unquote(urlparse(location).path)).parent,
        aside.name,
        f", its files are in {files.name}" if files.exists() else "",
        shlex.quote(database_uri(aside)),
    )
    return aside


def _artifact_location(database: Path, experiment: str) -> str | None:
    """Where an experiment keeps its files; None when that cannot be told (opening it will say why)."""
    if not database.is_file():
        return None
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(database, timeout=20)
        try:
            query = "SELECT artifact_location FROM experiments WHERE name = ?"
            row = connection.execute(query, (experiment,)).fetchone()
        finally:
            connection.close()
        return str(row[0]) if row and re.match(r"file:|/", str(row[0])) else None
    return None


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
            "tracker-elsewhere",
            f"{database}: its experiment '{name}' keeps files in {found.artifact_location}, not in {artifacts}"
            f"\n    -> it is a mirror of work/: rename or delete {database.name}* and sync again",
        )
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)

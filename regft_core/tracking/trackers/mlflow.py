"""MLflow: logs what was run to ``mlflow.db`` and ``mlartifacts``; nothing that is there is deleted or overwritten.

A run's identity is its key: for each key without an MLflow run one is made, with all its settings as parameters. Runs
of the configuration that the files have now carry the tag ``current``; those of earlier ones lose the tag and stay.
An experiment of DVC that runs in a copy of the project is logged to the project's database, and is not current there.
Each run keeps ``record.json`` among its artifacts, from which the next sync restores a database that was deleted.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pandas as pd
from filelock import FileLock

from regft_core.disk.files import write_json
from regft_core.disk.reading import read_json
from regft_core.errors import StoreError
from regft_core.report.facts import CHANGED, git
from regft_core.settings.files import project_root
from regft_core.tracking.entries import Entry
from regft_core.tracking.numbers import CURVES, Point
from regft_core.tracking.ui import database_uri, experiment_tags

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow import MlflowClient
    from mlflow.entities import Run

EXPERIMENT = "regft"
IDENTITY, KEYS, EVALUATION, KIND = "regft.identity", "regft.keys", "regft.evaluation", "regft.kind"
PARENT, SOURCE, TABLES = "mlflow.parentRunId", "mlflow.source", "mlflow.loggedArtifacts"
DVC_EXPERIMENT = "dvc.experiment"
RECORD = "record.json"


def log(root: Path, read: Callable[[], list[Entry]]) -> str:
    """Log the runs of the grid's cells, and the report; return one line for the screen.

    Args:
        root: ``mlflow.db`` and ``mlartifacts/`` are written there; those of the project itself where this is a copy of
            it for an experiment.
        read: returns the grid; runs of anything else lose the tag ``current``.

    Raises:
        DataError: a file of ``work/`` is not what it should be.
        StoreError: the database cannot be read, or nothing can be written.
    """
    home = project_root(root)
    with opened(home) as tracker:
        tracker.restore()
        tracker.name_revisions()
        entries = read()  # after the lock is taken: who waited must not write what it saw before
        shared = {**_source_tags(root), **({"current": "true"} if home == root else {})}
        for entry in entries:
            tracker.put(entry, shared)
        done = f"MLflow: {tracker.created} runs logged, {len(tracker.seen) - tracker.created} as before"
        if home != root:
            return f"{done}, in {home / 'mlflow.db'}"
        earlier = tracker.retire()
        for key, value in experiment_tags([entry for entry in entries if entry.kind == "cell"]).items():
            tracker.client.set_experiment_tag(tracker.experiment, key, value)
    return f"{done}, {earlier} of earlier configurations"


@contextmanager
def opened(root: Path) -> Iterator[Tracker]:
    """The project's tracker, while no other process writes it.

    Raises StoreError where MLflow cannot open the database, or refuses a write.
    """
    for name, value in (("MLFLOW_DISABLE_TELEMETRY", "true"), ("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")):
        os.environ.setdefault(name, value)  # before its import
    for name in ("alembic", "mlflow.store.db.utils"):  # a hundred lines about migrations
        logging.getLogger(name).setLevel(logging.WARNING)
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    root = root.resolve()
    with FileLock(root / "mlflow.db.lock"):
        try:
            yield Tracker(root)
        except (MlflowException, SQLAlchemyError, sqlite3.Error) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise StoreError(
                "tracker-refused",
                f"{root / 'mlflow.db'}: MLflow cannot open or write it: {reason}\n    -> run the command again when "
                "the cause is gone, or move the file away: `regft sync` makes it again from mlartifacts/",
            ) from error


class Tracker:
    """The open database.

    Attributes:
        root: of the project.
        client: MLflow's own.
        runs: identity -> runs that a sync made; a cell has one for each of its configurations.
        seen: ids of the runs that the files hold now; ``created``: how many of them are new.
    """

    def __init__(self, root: Path) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import ViewType

        self.root, self.artifacts = root, root / "mlartifacts"
        self.client: MlflowClient = MlflowClient(tracking_uri=database_uri(root), registry_uri=database_uri(root))
        found, location = self.client.get_experiment_by_name(EXPERIMENT), self.artifacts.as_uri()
        if found is not None and found.artifact_location.rstrip("/") != location:
            raise StoreError(
                "tracker-moved",
                f"{root / 'mlflow.db'} keeps its files in {found.artifact_location}: was this project copied or "
                "moved?\n    -> move mlflow.db away, and run `regft sync`: it is made again from mlartifacts/",
            )
        if found is None:
            with closing(sqlite3.connect(root / "mlflow.db", timeout=20)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")  # the page reads while a sync writes
        self.artifacts.mkdir(exist_ok=True)
        self.experiment = found.experiment_id if found else self.client.create_experiment(EXPERIMENT, location)
        self.runs: dict[str, list[Run]] = {}
        self.seen: set[str] = set()
        self.created = 0
        self._status: dict[str, str] = {}
        token: str | None = None
        while token != "":
            page = self.client.search_runs([self.experiment], "", ViewType.ALL, 5000, page_token=token)
            for run in page:
                self._note(run)
            token = page.token or ""

    def _note(self, run: Run) -> None:
        self._status[run.info.run_id] = run.info.status
        if (identity := run.data.tags.get(IDENTITY)) is not None:
            self.runs.setdefault(identity, []).append(run)

    def restore(self) -> None:
        """Make again what a deleted database had: every run whose record is among the artifacts."""
        files = self.artifacts.glob(f"*/artifacts/{RECORD}")
        records = {path.parent.parent.name: read_json(path, dict) for path in files}
        for run_id in [one for one, status in self._status.items() if status == "RUNNING" and one in records]:
            self._finish(run_id, records[run_id])  # a killed restoring left it
        ids: dict[str, str] = {}
        lost = {name: record for name, record in records.items() if name not in self._status}
        kinds = ("report", "cell", "run", "phase")  # parents first
        for name, record in sorted(lost.items(), key=lambda lost_run: kinds.index(lost_run[1]["tags"][KIND])):
            if (parent := record["tags"].get(PARENT)) is not None:
                record["tags"][PARENT] = ids.get(parent, parent)
            ids[name] = run_id = self._new(record["name"], record["start"], record["tags"])
            os.replace(self.artifacts / name / "artifacts", self._folder(run_id))
            (self.artifacts / name).rmdir()
            self._finish(run_id, record)
            self._note(self.client.get_run(run_id))

    def name_revisions(self) -> None:
        """Tag the runs of DVC's experiments with the revisions that ``dvc exp show`` has: made after the stages ran."""
        lines = git(self.root, "for-each-ref", "--format=%(refname) %(objectname:short=7)", "refs/exps").splitlines()
        revisions = {name.rpartition("/")[2]: revision for name, revision in map(str.split, lines)}
        for run in (run for runs in self.runs.values() for run in runs if run.data.tags.get(DVC_EXPERIMENT)):
            names = [name for name in run.data.tags[DVC_EXPERIMENT].split(", ") if name in revisions]
            revision = ", ".join(revisions[name] for name in names)
            if revision not in ("", run.data.tags.get("dvc.revision")):
                self.client.set_tag(run.info.run_id, "dvc.revision", revision)

    def put(self, entry: Entry, shared: Mapping[str, str], parent: str | None = None) -> None:
        """Log an entry and those nested in it, or what has come to them since they were logged.

        ``shared``: tags of all runs that are logged now; those of their source are of the first time.
        """
        run = next((run for run in reversed(self.runs.get(entry.identity, [])) if _same_settings(entry, run)), None)
        tags = {**entry.tags, IDENTITY: entry.identity, KIND: entry.kind, KEYS: json.dumps(dict(entry.keys)), **shared}
        tags |= {PARENT: parent} if parent else {}
        tags = {key: value for key, value in tags.items() if value or (run and key in run.data.tags)}
        if name := os.environ.get("DVC_EXP_NAME"):
            names = (run.data.tags.get(DVC_EXPERIMENT, "") if run else "").split(", ")
            tags[DVC_EXPERIMENT] = ", ".join(dict.fromkeys(filter(None, [*names, name])))
        if run is not None and run.info.status != "RUNNING":
            run_id = str(run.info.run_id)
            self._update(run, entry, {key: value for key, value in tags.items() if not key.startswith(SOURCE)})
        else:
            run_id = self._create(entry, tags | {EVALUATION: entry.evaluation}, run)
        self.seen.add(run_id)
        for nested in entry.nested:
            self.put(nested, shared, run_id)

    def _create(self, entry: Entry, tags: Mapping[str, str], killed: Run | None) -> str:
        """Log an entry as a new run, or as that which a killed sync left; return its id."""
        run_id = str(killed.info.run_id) if killed else self._new(entry.name, entry.start, tags)
        files = entry.first_files()
        self._write(run_id, files)
        if any(isinstance(content, pd.DataFrame) for content in files.values()):  # MLflow's page finds tables by a tag
            tags = {**tags, TABLES: self.client.get_run(run_id).data.tags[TABLES]}
        scores = [Point(name, value, 0, entry.end) for name, value in entry.scores.items()]
        record = {
            **{"name": entry.name, "start": entry.start, "end": entry.end, "ok": entry.ok},
            # In the order of the run's page.
            **{"tags": dict(tags), "params": dict(entry.params), "metrics": [*scores, *entry.points]},
            "datasets": list(entry.datasets),
        }
        self._finish(run_id, record)
        self.created += 1
        return run_id

    def _update(self, run: Run, entry: Entry, tags: Mapping[str, str]) -> None:
        """Add scores, judged files and datasets that are new; earlier values stay in the metric's history."""
        if run.info.lifecycle_stage != "active":
            return  # somebody deleted it in the page
        run_id, now, known = str(run.info.run_id), int(time.time() * 1000), run.data
        wanted = {**tags, KEYS: json.dumps({**json.loads(known.tags[KEYS]), **entry.keys})}
        if entry.evaluation and entry.evaluation != known.tags.get(EVALUATION):
            wanted[EVALUATION] = entry.evaluation
            folder = f"evaluation-{entry.evaluation[:8]}/" if known.tags.get(EVALUATION) else ""
            self._write(run_id, {f"{folder}{name}": path for name, path in entry.judged.items()})
        changed = {key: value for key, value in wanted.items() if known.tags.get(key) != value}
        # A mean that is no longer known (an evaluation was switched off) is no number: metrics cannot be taken away.
        numbers = [name for name in known.metrics if entry.kind == "cell" and not name.startswith(CURVES)]
        latest = {**dict.fromkeys(numbers, math.nan), **entry.scores}
        before = {name: known.metrics.get(name) for name in latest}
        scores = [Point(name, v, 0, now) for name, v in latest.items() if str(v) != str(before[name])]
        there = {one.dataset.name for one in run.inputs.dataset_inputs} if run.inputs else set()
        datasets = [one for one in entry.datasets if one[0] not in there]
        if not (changed or scores or datasets):
            return
        record = read_json(self._folder(run_id) / RECORD, dict)
        record |= {"ok": entry.ok, "tags": {**record["tags"], **changed}}
        stored = [(name, None if math.isnan(value) else value, *at) for name, value, *at in scores]  # JSON has no NaN
        record |= {"metrics": [*record["metrics"], *stored], "datasets": [*record["datasets"], *datasets]}
        write_json(self._folder(run_id) / RECORD, record)
        self._log(run_id, scores, {}, changed, datasets)
        self.client.set_terminated(run_id, "FINISHED" if entry.ok else "FAILED", run.info.end_time)

    def retire(self) -> int:
        """Take the tag ``current`` from all other runs; return how many a sync has made that are not current."""
        others = [run for runs in self.runs.values() for run in runs if run.info.run_id not in self.seen]
        for run in others:
            if "current" in run.data.tags and run.info.lifecycle_stage == "active":
                self.client.delete_tag(run.info.run_id, "current")
        return len(others)

    def _new(self, name: str, start: int, tags: Mapping[str, str]) -> str:
        return str(self.client.create_run(self.experiment, start, dict(tags), name).info.run_id)

    def _finish(self, run_id: str, record: Mapping[str, Any]) -> None:
        """Log a record, and end the run last, so that what a killed sync leaves is seen to be incomplete."""
        points = [Point(name, math.nan if value is None else value, *at) for name, value, *at in record["metrics"]]
        write_json(self._folder(run_id) / RECORD, record)
        self._log(run_id, points, record["params"], {}, record["datasets"])
        self.client.set_terminated(run_id, "FINISHED" if record["ok"] else "FAILED", record["end"])

    def _log(
        self, run_id: str, points: Sequence[Point], params: Mapping[str, str], tags: Mapping[str, str],
        datasets: Sequence[Sequence[Any]],
    ) -> None:  # fmt: skip
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

        self.client.log_batch(
            run_id,
            [Metric(point.name, point.value, point.time, point.step) for point in points],
            [Param(key, value) for key, value in params.items()],
            [RunTag(key, value) for key, value in tags.items()],
        )
        inputs = [
            DatasetInput(
                Dataset(name, digest, "local", json.dumps({"uri": folder}), profile=json.dumps({"rows": rows})),
                [InputTag("mlflow.data.context", context)],
            )
            for name, digest, context, folder, rows in datasets
        ]
        if inputs:
            self.client.log_inputs(run_id, datasets=inputs)

    def _write(self, run_id: str, files: Mapping[str, str | Path | pd.DataFrame | Figure]) -> None:
        """Log texts, files, tables and figures as a run's artifacts."""
        for name, content in files.items():
            if isinstance(content, Path):
                folder = str(PurePosixPath(name).parent)
                self.client.log_artifact(run_id, str(content), None if folder == "." else folder)
            elif isinstance(content, str):
                self.client.log_text(run_id, content, name)
            elif isinstance(content, pd.DataFrame):
                self.client.log_table(run_id, content, name)
            else:
                self.client.log_figure(run_id, content, name)

    def _folder(self, run_id: str) -> Path:
        folder = self.artifacts / run_id / "artifacts"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _same_settings(entry: Entry, run: Run) -> bool:
    """Whether a run of the same identity is the entry's: of a cell the settings, and no seed with another key."""
    keys = json.loads(run.data.tags[KEYS])
    same = run.data.params == dict(entry.params) and all(entry.keys.get(s, key) == key for s, key in keys.items())
    return entry.kind != "cell" or same


def _source_tags(root: Path) -> dict[str, str]:
    """Tags that name the pipeline, and the commit of the project when a run is first logged."""
    tags = {f"{SOURCE}.name": "dvc.yaml", f"{SOURCE}.type": "LOCAL"}
    if commit := git(root, "rev-parse", "--verify", "HEAD"):
        changed = git(root, *CHANGED)
        tags |= {f"{SOURCE}.git.commit": commit, f"{SOURCE}.git.dirty": str(bool(changed)).lower()}
        tags[f"{SOURCE}.git.branch"] = git(root, "rev-parse", "--abbrev-ref", "HEAD")
    return tags

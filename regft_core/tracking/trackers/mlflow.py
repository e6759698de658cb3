"""MLflow: logs what was run to ``mlflow.db`` and ``mlartifacts``; nothing that is there is deleted or overwritten.

Each entry becomes one run, whole. Later only its tags change: runs of the configuration that the files have now carry
``current``. An experiment of DVC in a copy of the project is logged to the project's database, and is not current
there. Each run keeps ``record.json`` among its artifacts, from which a deleted database is restored.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pandas as pd
from filelock import FileLock

from regft_core.disk.canonical import sha256_file, sha256_text
from regft_core.disk.files import atomic_directory, write_json
from regft_core.disk.reading import read_json
from regft_core.errors import StoreError
from regft_core.report.facts import CHANGED, git
from regft_core.settings.yaml_paths import project_root
from regft_core.tracking.entries import Entry
from regft_core.tracking.numbers import tensor_artifacts
from regft_core.tracking.ui import database_uri, experiment_tags

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow import MlflowClient
    from mlflow.entities import Run

EXPERIMENT = "regft"
IDENTITY, KEYS, KIND = "regft.identity", "regft.keys", "regft.kind"
KINDS = ("report", "cell", "run", "phase")
PARENT, SOURCE, TABLES = "mlflow.parentRunId", "mlflow.source", "mlflow.loggedArtifacts"
DVC_EXPERIMENT = "dvc.experiment"
RECORD = "record.json"


def log(root: Path, read: Callable[[], list[Entry]]) -> str:
    """Log the runs of the grid's cells, and the report; runs of anything else lose the tag ``current``.

    They go to the database of the project itself where ``root`` is a copy of it for an experiment. StoreError where
    the database cannot be read or written.
    """
    home = project_root(root)
    with opened(home) as tracker:
        tracker.restore()
        tracker.name_revisions()
        entries = read()  # after the lock is taken: who waited must not write what it saw before
        source = _source_tags(root)
        for entry in entries:
            tracker.put(entry, source, current=home == root)
        done = f"MLflow: {tracker.created} runs logged, {len(tracker.seen) - tracker.created} as before"
        if home != root:
            return f"{done}, in {home / 'mlflow.db'}"
        others = [run for run in tracker.runs.values() if run.info.run_id not in tracker.seen]
        for run in others:
            if "current" in run.data.tags and run.info.lifecycle_stage == "active":
                tracker.client.delete_tag(run.info.run_id, "current")
        for key, value in experiment_tags([entry for entry in entries if entry.kind == "cell"]).items():
            tracker.client.set_experiment_tag(tracker.experiment, key, value)
    return f"{done}, {len(others)} of earlier configurations"


@contextmanager
def opened(root: Path) -> Iterator[Tracker]:
    """Have the tracker, while no other process writes it; StoreError where MLflow cannot open it or refuses."""
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
            what = f"{root / 'mlflow.db'}: MLflow cannot open or write it: {reason}"
            hint = "run it again when the cause is gone, or move the file away: `regft sync` makes it from mlartifacts/"
            raise StoreError("tracker-refused", f"{what}\n    -> {hint}") from error


class Tracker:
    """The open database. ``runs``: identity -> run; ``seen``: ids of runs that the files hold, ``created`` anew."""

    def __init__(self, root: Path) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import ViewType

        self.root, self.artifacts = root, root / "mlartifacts"
        self.client: MlflowClient = MlflowClient(tracking_uri=database_uri(root), registry_uri=database_uri(root))
        found, location = self.client.get_experiment_by_name(EXPERIMENT), self.artifacts.as_uri()
        if found is not None and found.artifact_location.rstrip("/") != location:
            what = f"{root / 'mlflow.db'} keeps its files in {found.artifact_location}: was it copied or moved?"
            hint = "move mlflow.db away, and run `regft sync`: it is made again from mlartifacts/"
            raise StoreError("tracker-moved", f"{what}\n    -> {hint}")
        if found is None:
            with closing(sqlite3.connect(root / "mlflow.db", timeout=20)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")  # the page reads while a sync writes
        self.artifacts.mkdir(exist_ok=True)
        self.experiment = found.experiment_id if found else self.client.create_experiment(EXPERIMENT, location)
        self.runs: dict[str, Run] = {}
        self.seen: set[str] = set()
        self.created = 0
        token: str | None = None
        while token != "":
            page = self.client.search_runs([self.experiment], "", ViewType.ALL, 5000, page_token=token)
            for run in page:
                tags, unfinished = run.data.tags, run.info.status == "RUNNING"
                if IDENTITY in tags and not unfinished:
                    self.runs[tags[IDENTITY]] = run
                elif KIND in tags and unfinished and run.info.lifecycle_stage == "active":
                    self.client.delete_run(run.info.run_id)  # a killed sync left it; it is logged, or restored, again
            token = page.token or ""

    def restore(self) -> None:
        """Make again what a deleted database had: every run whose record is among the artifacts."""
        known = {run.info.run_id for run in self.runs.values()}
        paths = {path.parents[1].name: path for path in self.artifacts.glob(f"*/artifacts/{RECORD}")}
        lost = {name: read_json(path, dict) for name, path in paths.items() if name not in known}
        ids: dict[str, str] = {}
        for name in sorted(lost, key=lambda name: KINDS.index(lost[name]["tags"][KIND])):  # parents first
            record = lost[name]
            if (parent := record["tags"].get(PARENT)) is not None:
                record["tags"][PARENT] = ids.get(parent, parent)
            run_id = ids[name] = self._new(record["name"], record["start"], record["tags"][KIND])
            os.replace(self.artifacts / name / "artifacts", self._folder(run_id))
            (self.artifacts / name).rmdir()
            self._finish(run_id, record)
            self.runs[record["tags"][IDENTITY]] = self.client.get_run(run_id)

    def name_revisions(self) -> None:
        """Tag the runs of DVC's experiments with the revisions that ``dvc exp show`` has: made after the stages ran."""
        lines = git(self.root, "for-each-ref", "--format=%(refname) %(objectname:short=7)", "refs/exps").splitlines()
        revisions = {name.rpartition("/")[2]: revision for name, revision in map(str.split, lines)}
        for run in self.runs.values():
            names = [name for name in run.data.tags.get(DVC_EXPERIMENT, "").split(", ") if name in revisions]
            if names:
                self._tag(run, {"dvc.revision": ", ".join(revisions[name] for name in names)})

    def put(self, entry: Entry, source: Mapping[str, str], current: bool, parent: str | None = None) -> None:
        """Log an entry and those nested in it, each once, with the tags ``source``; known ones are tagged."""
        run = self.runs.get(entry.identity)
        links = {PARENT: parent} if parent and (current or run is None) else {}
        links |= {"current": "true"} if current else {}
        if name := os.environ.get("DVC_EXP_NAME"):
            names = (run.data.tags.get(DVC_EXPERIMENT, "") if run else "").split(", ")
            links[DVC_EXPERIMENT] = ", ".join(dict.fromkeys(filter(None, [*names, name])))
        if run is None:
            run_id = self._create(entry, {**source, **links})
        else:
            run_id = str(run.info.run_id)
            self._tag(run, links)
        self.seen.add(run_id)
        for nested in entry.nested:
            self.put(nested, source, current, run_id)

    def _create(self, entry: Entry, links: Mapping[str, str]) -> str:
        about = {IDENTITY: entry.identity, KIND: entry.kind, KEYS: json.dumps(dict(entry.keys))}
        tags = {key: value for key, value in {**entry.tags, **about, **links}.items() if value}
        run_id = self._new(entry.name, entry.start, entry.kind)
        files = {**entry.files, **tensor_artifacts(entry.tensors)}
        self._write(run_id, files)
        if any(isinstance(content, pd.DataFrame) for content in files.values()):  # MLflow's page finds tables by a tag
            tags[TABLES] = self.client.get_run(run_id).data.tags[TABLES]
        record = {name: getattr(entry, name) for name in ("name", "start", "end", "ok", "params", "datasets")}
        # Metrics in the order of the run's page.
        record |= {"tags": tags, "metrics": [*map(list, entry.scores.items()), *entry.points]}
        self._finish(run_id, record)
        self.created += 1
        return run_id

    def _tag(self, run: Run, tags: Mapping[str, str]) -> None:
        """Set tags of a run, in its record too, unless somebody has deleted it in the page."""
        changed = {key: value for key, value in tags.items() if run.data.tags.get(key) != value}
        if changed and run.info.lifecycle_stage == "active":
            file = self._folder(run.info.run_id) / RECORD
            if file.is_file():  # else somebody has deleted the artifacts
                record = read_json(file, dict)
                write_json(file, {**record, "tags": {**record["tags"], **changed}})
            for key, value in changed.items():
                self.client.set_tag(run.info.run_id, key, value)

    def _new(self, name: str, start: int, kind: str) -> str:
        return str(self.client.create_run(self.experiment, start, {KIND: kind}, name).info.run_id)

    def _finish(self, run_id: str, record: Mapping[str, Any]) -> None:
        """Log a record, and end the run last: one that still runs is what a killed sync left."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

        write_json(self._folder(run_id) / RECORD, record)
        points = [Metric(name, value, record["end"], *step[:1] or [0]) for name, value, *step in record["metrics"]]
        params = [Param(key, value) for key, value in record["params"].items()]
        self.client.log_batch(run_id, points, params, [RunTag(key, value) for key, value in record["tags"].items()])
        inputs = []
        for name, digest, context, folder, rows in record["datasets"]:
            source, profile = json.dumps({"uri": folder}), json.dumps({"rows": rows})
            dataset = Dataset(name, digest, "local", source, profile=profile)
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
        if inputs:
            self.client.log_inputs(run_id, datasets=inputs)
        self.client.set_terminated(run_id, "FINISHED" if record["ok"] else "FAILED", record["end"])

    def _write(self, run_id: str, files: Mapping[str, str | Path | pd.DataFrame | Figure]) -> None:
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


def _source_tags(root: Path) -> dict[str, str]:
    tags = {f"{SOURCE}.name": "dvc.yaml", f"{SOURCE}.type": "LOCAL"}
    if commit := git(root, "rev-parse", "--verify", "HEAD"):
        changed = git(root, *CHANGED)
        tags |= {f"{SOURCE}.git.commit": commit, f"{SOURCE}.git.dirty": str(bool(changed)).lower()}
        tags[f"{SOURCE}.git.branch"] = git(root, "rev-parse", "--abbrev-ref", "HEAD")
    return tags


def register(root: Path, folder: Path, task: str, tags: Mapping[str, str]) -> int:
    """Register a copy of the export ``folder`` as a version of the model ``task``; return its number.

    The copy is below ``mlartifacts/models``; the same content keeps its version. Sync first: the version then names the
    run that was exported. StoreError where the database or the copy cannot be written.
    """
    root, folder = root.resolve(), folder.resolve()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    content = sha256_text("\n".join(f"{path.relative_to(folder)} {sha256_file(path)}" for path in files))[:16]
    key = read_json(folder / "regft.json", dict).get("run_key") or ""
    with opened(root) as tracker:
        client, copy = tracker.client, tracker.artifacts / "models" / task / content
        if not client.search_registered_models(f"name = '{task}'"):
            client.create_registered_model(task, description=f"Exported models of the task {task}.")
        for version in client.search_model_versions(f"name = '{task}'"):
            if version.tags.get("regft.content") == content:
                return int(version.version)
        with atomic_directory(copy) as target:
            shutil.copytree(folder, target, dirs_exist_ok=True)
        # Equal methods share a key, and so do several evaluations of one run; then the current one is named.
        wanted = {KIND: "run", KEYS: json.dumps({tags.get("seed", ""): key}), "method": tags.get("method")}
        every = [run for run in tracker.runs.values() if wanted.items() <= {**run.data.params, **run.data.tags}.items()]
        logged = min(every, key=lambda run: "current" not in run.data.tags, default=None)
        card = (folder / "README.md").read_text(encoding="utf-8").split("\n---\n", 1)[-1].strip()
        made = client.create_model_version(
            task,
            copy.as_uri(),
            run_id=logged.info.run_id if logged is not None else None,
            tags={**tags, "regft.content": content, "regft.export": folder.name, "regft.key": key},
            description=card[:5000],  # without the metadata
        )
    return int(made.version)

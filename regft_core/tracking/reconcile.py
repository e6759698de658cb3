"""Brings the runs in MLflow into line with the records of the files."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from regft_core.io.canonical import canonical_json, sha256_text
from regft_core.io.write_errors import explained
from regft_core.runs.results.records import MARK
from regft_core.tracking.database import CURRENT, SUPERSEDED, Mirror, folder_of, is_active
from regft_core.tracking.records import CellRecord, DatasetRecord, Point, ReportRecord, RunRecord

if TYPE_CHECKING:
    from mlflow.entities import Run

PARENT = "mlflow.parentRunId"
#: Tags that a run has or has not, depending on the files.
OPTIONAL_TAGS = (
    *("primary", "control_for", "differs_by", "variant", "degraded", "collapsed", "contaminated", "error"),
    *("verdict_reference", "verdict_control", "no_better_than_constant", MARK),
    *("regft.export", "regft.evaluations"),
)


@dataclass
class Reconciliation:
    """Compares the files' records with what MLflow has, and writes the difference."""

    mirror: Mirror
    #: Tags that new runs get and keep: where they come from.
    source: Mapping[str, str]
    #: what the database holds, by what identifies it
    seeds: dict[tuple[str, str, str], list[Run]] = field(default_factory=lambda: defaultdict(list))
    parents: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    reports: list[Run] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    superseded: int = 0

    def load(self) -> None:
        """Sort what is there; what a killed sync left half-written goes."""
        for run in self.mirror.runs():
            tags = run.data.tags
            if run.info.status == "RUNNING":
                self.mirror.client.delete_run(run.info.run_id)
            elif tags["regft.kind"] == "run":
                self.seeds[tags["regft.cell"], tags["seed"], tags["regft.key"]].append(run)
            elif tags["regft.kind"] == "cell":
                self.parents[tags["regft.cell"]].append(run)
            else:
                self.reports.append(run)

    # ------------------------------------------------------------------------------ cells

    def cell(self, record: CellRecord) -> None:
        """Mirror one cell: its parent, then its seeds."""
        parent = self._parent(record)
        for run in record.runs:
            self._seed(run, parent)

    def _parent(self, record: CellRecord) -> str:
        tags = _parent_tags(record)
        status = "FAILED" if record.tags["status"] == "failed" else "FINISHED"
        start, end = min(run.start for run in record.runs), max(run.end for run in record.runs)
        candidates = [
            run
            for run in self.parents[record.cell]
            if run.data.params == dict(record.params) and _read_these(run, record.datasets)
        ]
        if not candidates:
            metrics = [Point(name, value, 0, end) for name, value in record.scores.items()]
            files = {"config.yaml": _yaml(record.config)}
            return self._create(record.name, start, end, status, tags, record.params, metrics, files, record.datasets)
        run = _best(candidates)
        now = int(time.time() * 1000)
        # A number that is gone (a set no longer evaluated) cannot be deleted in MLflow; NaN says so.
        wanted = dict.fromkeys(run.data.metrics, math.nan) | dict(record.scores)
        changed = [
            Point(name, value, 0, now) for name, value in wanted.items() if not _same(value, run.data.metrics.get(name))
        ]
        self._refresh(run, tags, changed, status, end, record.datasets)
        return str(run.info.run_id)

    def _seed(self, record: RunRecord, parent: str) -> None:
        tags = _run_tags(record, parent)
        known = [
            run
            for run in self.seeds[record.cell, str(record.seed), record.key]
            if run.data.tags["regft.training"] == record.training
        ]
        # While an evaluation is being made again its files are gone; the last known one stays meanwhile.
        exact = [r for r in known if r.data.tags["regft.evaluation"] == record.evaluation or not record.evaluation]
        unjudged = [r for r in known if not r.data.tags["regft.evaluation"]]
        status = "FINISHED" if record.ok else "FAILED"
        if exact:
            run = _best(exact)
            if run.data.tags["regft.evaluation"] == record.evaluation:
                # Numbers that an earlier version of the mirror, or fewer evaluations, did not know.
                missing, at = {n: v for n, v in record.scores.items() if n not in run.data.metrics}, record.end
                if run.data.tags.get("regft.evaluations", "") != tags.get("regft.evaluations", ""):
                    # Of two values the later one counts for MLflow, and of the same time the larger one.
                    missing, at = _changed(record, run.data.metrics), int(time.time() * 1000)
                    _write_files(run, _evaluation_files(record))
                new = [Point(name, value, 0, at) for name, value in missing.items()]
                self._refresh(run, tags, new, status, record.end, record.datasets)
            else:
                self._refresh(run, run.data.tags | {"regft.status": CURRENT, PARENT: parent}, [], run.info.status)
            return
        scores = [Point(name, value, 0, record.end) for name, value in record.scores.items()]
        files = _run_files(record)
        if unjudged:
            run = _best(unjudged)
            _write_files(run, files)
            new = [metric for metric in scores if not _same(metric.value, run.data.metrics.get(metric.name))]
            self._refresh(run, tags, new, status, record.end, record.datasets)
            return
        # Scores first: the compare page starts with the first metric it finds.
        numbers = scores + record.points()
        data = record.datasets
        self._create(record.name, record.start, record.end, status, tags, record.params, numbers, files, data)

    # ----------------------------------------------------------------------------- report

    def report(self, record: ReportRecord) -> None:
        """Mirror the report's files into one run, which always holds the latest."""
        tags = {"regft.kind": "report", "regft.content": record.digest, "regft.status": CURRENT}
        files = {path.relative_to(record.folder).as_posix(): path for path in record.files}
        if not self.reports:
            self._create("report", record.time, record.time, "FINISHED", tags, {}, [], files)
            return
        run = _best(self.reports)
        if run.data.tags.get("regft.content") != record.digest:
            _write_files(run, files)
        self._refresh(run, tags, [])

    # ------------------------------------------------------------------------------ writing

    def _create(
        self,
        name: str,
        start: int,
        end: int,
        status: str,
        tags: Mapping[str, str],
        params: Mapping[str, str],
        metrics: Sequence[Point],
        files: Mapping[str, str | Path],
        datasets: Sequence[DatasetRecord] = (),
    ) -> str:
        """Make a run; it has ended last, so that what a killed sync leaves is seen to be incomplete."""
        client = self.mirror.client
        known = {**self.source, **tags}
        run = client.create_run(self.mirror.experiment_id, start_time=start, tags=known, run_name=name)
        run_id = str(run.info.run_id)
        _write_files(run, files)
        self.mirror.log(run_id, metrics, params)
        if datasets:
            client.log_inputs(run_id, datasets=[_dataset(one) for one in datasets])
        client.set_terminated(run_id, status, end)
        self.kept.add(run_id)
        self.created += 1
        return run_id

    def _refresh(
        self,
        run: Run,
        tags: Mapping[str, str],
        metrics: Sequence[Point],
        status: str = "FINISHED",
        end: int | None = None,
        datasets: Sequence[DatasetRecord] = (),
    ) -> None:
        """Make a run that is there say what the files say now."""
        run_id, known, retired = run.info.run_id, run.data.tags, not is_active(run)
        if retired:
            self.mirror.client.restore_run(run_id)  # MLflow writes to active runs only
        changed = {key: value for key, value in tags.items() if known.get(key) != value}
        gone = [key for key in OPTIONAL_TAGS if key in known and key not in tags]
        if changed or metrics:
            self.mirror.log(run_id, metrics, tags=changed)
        there = _datasets(run)
        new_data = [one for one in datasets if one.name not in there]
        if new_data:
            self.mirror.client.log_inputs(run_id, datasets=[_dataset(one) for one in new_data])
        for key in gone:
            self.mirror.client.delete_tag(run_id, key)
        if run.info.status != status:
            self.mirror.client.set_terminated(run_id, status, end)
        self.kept.add(run_id)
        if retired or changed or metrics or new_data or gone or run.info.status != status:
            self.updated += 1
        else:
            self.unchanged += 1

    def finish(self) -> None:
        """Retire whatever the files no longer say: tag it as superseded and put it in the state Deleted.

        MLflow keeps such runs with everything in them (only `mlflow gc` deletes for good), and the
        next sync whose files say the same restores them.
        """
        for run in chain(*self.seeds.values(), *self.parents.values(), self.reports):
            if run.info.run_id in self.kept:
                continue
            if run.data.tags.get("regft.status") != SUPERSEDED:
                # First: the tag tells it from a run that a user deleted, and deleted runs take no tags.
                self.mirror.client.set_tag(run.info.run_id, "regft.status", SUPERSEDED)
                self.superseded += 1
            if is_active(run):
                self.mirror.client.delete_run(run.info.run_id)


def _best(runs: Sequence[Run]) -> Run:
    """The current one; else the latest."""
    return max(runs, key=lambda run: (run.data.tags.get("regft.status") == CURRENT, run.info.start_time))


def _same(one: float, other: float | None) -> bool:
    return other is not None and (one == other or (math.isnan(one) and math.isnan(other)))


def _parent_tags(record: CellRecord) -> dict[str, str]:
    return dict(record.tags) | {"regft.kind": "cell", "regft.cell": record.cell, "regft.status": CURRENT}


def _changed(record: RunRecord, known: Mapping[str, float]) -> dict[str, float]:
    """Scores that are new or differ; NaN for those that are gone, which MLflow cannot delete."""
    curves = {point.name for point in record.points()}
    gone = {name: math.nan for name in known if name not in record.scores and name not in curves}
    return {name: value for name, value in (gone | dict(record.scores)).items() if not _same(value, known.get(name))}


def _run_tags(record: RunRecord, parent: str) -> dict[str, str]:
    # Apart from the scores: switching an evaluation on adds to a run instead of making another one.
    digest = {"regft.evaluations": sha256_text(canonical_json(record.evaluations))[:16]} if record.evaluations else {}
    return (
        dict(record.tags)
        | digest
        | {
            "regft.kind": "run",
            "regft.cell": record.cell,
            "regft.key": record.key,
            "regft.training": record.training,
            "regft.evaluation": record.evaluation,
            "regft.status": CURRENT,
            PARENT: parent,
        }
    )


def _write_files(run: Run, files: Mapping[str, str | Path]) -> None:
    """Copy files (paths) and texts into a run's artifacts; raises StoreError."""
    folder = folder_of(run.info.artifact_uri)
    with explained(folder):
        for name, content in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, target)
            else:
                target.write_text(content, encoding="utf-8")


#: The writer in C where there is one: these files are most of the time that a run takes.
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _yaml(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
    return text


def _run_files(record: RunRecord) -> dict[str, str | Path]:
    files: dict[str, str | Path] = {
        "config.yaml": _yaml({"seed": record.seed, **record.config}),
        "run.yaml": _yaml(record.record),
    }
    return files | _evaluation_files(record) | {f"predictions/{path.name}": path for path in record.predictions}


def _evaluation_files(record: RunRecord) -> dict[str, str | Path]:
    return {
        f"evaluations/{name}.json": json.dumps(found, indent=1, ensure_ascii=False)
        for name, found in record.evaluations.items()
    }


def _datasets(run: Run) -> dict[str, str]:
    """Name -> digest of what a run says that it read."""
    found = run.inputs.dataset_inputs if run.inputs is not None else ()
    return {one.dataset.name: one.dataset.digest for one in found}


def _read_these(run: Run, datasets: Sequence[DatasetRecord]) -> bool:
    """Whether no set has other rows in the run, from which MLflow takes no dataset away."""
    there = _datasets(run)
    return all(there.get(one.name, one.digest) == one.digest for one in datasets)


def _dataset(one: DatasetRecord) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    data = Dataset(one.name, one.digest, "local", json.dumps({"uri": one.source}), profile=one.profile)
    return DatasetInput(data, [InputTag("mlflow.data.context", one.context)])

"""A small ``work/`` tree as the stages write it, whose cells are written one by one, and the runs of its database."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from csv import DictReader
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from mlflow import MlflowClient
from mlflow.entities import ViewType
from safetensors.numpy import save_file

from regft_core.settings.project import Cell
from regft_core.tracking import MLFLOW
from regft_core.tracking import sync as sync_project
from regft_core.tracking.trackers.mlflow import database_uri
from tests.report.synthetic import Arm, Task, build, key_of

VANILLA, HYPE = Cell("vanilla", "rte", 300), Cell("hype_n", "rte", 300)
SEARCHED = Cell("weight_mixup", "rte", 300)
ARM = Arm(seconds=30.0, declared=1.5, logs=("hype.noise",), members=2, variant="paper")
TASK = Task(metrics=("accuracy",), n=20, ood=("hans",))


def sync(root: Path, cells: Iterable[Cell], seeds: Sequence[int], trackers: Sequence[str] = MLFLOW) -> str:
    """Log the runs of some cells of a tree."""
    grid = SimpleNamespace(tasks=["rte"], sizes=[300], seeds=seeds)
    params: Any = SimpleNamespace(grid=grid, task_settings={}, store=SimpleNamespace(path=".regft"))
    project: Any = SimpleNamespace(root=root, params=params, methods=[cell.method for cell in cells])
    return sync_project(project, trackers)


@dataclass
class Tree:
    """Writes what the stages would write under ``root``."""

    root: Path

    def write(self, path: str, content: Any) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content, sort_keys=True))
        return target

    def read(self, path: str | Path) -> Any:
        return json.loads((self.root / path).read_text())

    def cell(self, cell: Cell, seeds: list[int], *, evaluated: bool = True, **changes: Any) -> None:
        """Train and evaluate a cell; ``changes`` are those of its ``Arm``."""
        arm = replace(ARM, search=cell == SEARCHED, **changes)
        build(self.root, {cell.method: arm}, {cell.task: TASK}, (cell.size,), seeds)
        if not evaluated:
            shutil.rmtree(self.root / "work" / "evaluate" / cell.directory)

    def scores(self, cell: Cell, set_name: str = "dev") -> list[float]:
        """The accuracy in points of each seed."""
        runs = self.read(f"work/evaluate/{cell.directory}/result.json")["runs"]
        return [round(100 * run["sets"][set_name]["metrics"]["accuracy"], 2) for run in runs]

    def losses(self, cell: Cell, seed: int, stage: str = "finetune", phase: str = "finetune") -> list[float]:
        """The loss of every step of a phase."""
        with (self.root / "work" / stage / cell.directory / "curves.csv").open() as file:
            return [float(row["loss"]) for row in DictReader(file) if (row["seed"], row["phase"]) == (str(seed), phase)]

    def key(self, cell: Cell, seed: int, phase: str = "finetune") -> str:
        return key_of(replace(ARM, search=cell == SEARCHED), cell, seed, phase)

    def stored(self, key: str, result: dict[str, Any], members: tuple[str, ...] = ()) -> None:
        """Write a run of the run store, with attention."""
        place = f".regft/runs/{key[:2]}/{key}"
        self.write(f"{place}/result.json", result)
        tensors = {"weight_mixup.attention": np.arange(6, dtype=np.float32).reshape(2, 3)}
        save_file(tensors, self.write(f"{place}/identity.json", {"members": members}).with_name("state.safetensors"))

    def report(self, text: str, metrics: dict[str, Any] | None = None) -> None:
        self.write("reports/report.html", f"<html><body>{text}</body></html>")
        self.write("reports/results.json", metrics or {})
        lines = ["method,task,size,seed,key"]
        for file in self.root.glob("work/evaluate/*/*/*/result.json"):
            lines += [",".join([*file.parts[-4:-1], str(run["seed"]), run["key"]]) for run in self.read(file)["runs"]]
        if metrics:
            self.write("reports/tables/runs.csv", "\n".join(lines))


# ------------------------------------------------------------------------------------------------------- the database


def client(root: Path) -> Any:
    return MlflowClient(tracking_uri=database_uri(root), registry_uri=database_uri(root))


def search(root: Path, text: str = "", view: int = ViewType.ACTIVE_ONLY) -> dict[str, Any]:
    mlflow = client(root)
    found = mlflow.search_runs([mlflow.get_experiment_by_name("regft").experiment_id], text, view, max_results=1000)
    names = {run.info.run_name: run for run in found}
    assert len(names) == len(found), "names of the runs that were looked for are unique here"
    return names


def current(root: Path) -> dict[str, Any]:
    return search(root, "tags.current = 'true'")


def files_of(run: Any) -> Path:
    return Path(run.info.artifact_uri.removeprefix("file://"))


def history(root: Path, run: Any, metric: str) -> list[float]:
    return [point.value for point in client(root).get_metric_history(run.info.run_id, metric)]


def snapshot(root: Path) -> list[Any]:
    """Everything that a reader sees, without the identifiers that MLflow draws."""
    mlflow = client(root)
    runs = mlflow.search_runs([mlflow.get_experiment_by_name("regft").experiment_id], "", ViewType.ALL)
    names = {run.info.run_id: run.info.run_name for run in runs}
    found = []
    for run in runs:
        curves = {
            name: sorted((m.step, m.timestamp, m.value) for m in mlflow.get_metric_history(run.info.run_id, name))
            for name in run.data.metrics
        }
        tags = {key: names.get(value, value) for key, value in run.data.tags.items()}
        files = sorted(path for path in files_of(run).rglob("*") if path.is_file() and path.name != "record.json")
        contents = {path.relative_to(files_of(run)).as_posix(): path.read_bytes() for path in files}
        inputs = sorted((one.dataset.name, one.dataset.digest) for one in run.inputs.dataset_inputs)
        about = (run.info.status, run.info.start_time, run.info.end_time, run.info.lifecycle_stage)
        found.append((run.info.run_name, tags, run.data.params, curves, contents, inputs, about))
    return sorted(found, key=lambda one: (one[0], one[1]["regft.identity"], one[1]["regft.keys"]))

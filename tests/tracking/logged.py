"""Read the runs of a project from its MLflow database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import ViewType

from regft_core.tracking.trackers.mlflow import database_uri


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
        contents = {path.relative_to(files_of(run)).as_posix(): path.read_text() for path in files}
        inputs = sorted((one.dataset.name, one.dataset.digest) for one in run.inputs.dataset_inputs)
        about = (run.info.status, run.info.start_time, run.info.end_time, run.info.lifecycle_stage)
        found.append((run.info.run_name, tags, run.data.params, curves, contents, inputs, about))
    return sorted(found, key=lambda one: (one[0], one[1]["regft.identity"], one[1]["regft.keys"]))

"""A run that is written at once is the run that MLflow's client writes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from regft_core.tracking import bulk
from regft_core.tracking.records import Point
from regft_core.tracking.store import database_uri
from regft_core.tracking.sync import sync
from tests.tracking.tree import HYPE, VANILLA, Tree


def content(root: Path) -> dict[str, Any]:
    """Every run by its name, without its identifier and what points to one."""
    client = MlflowClient(tracking_uri=database_uri(root / "mlflow.db"))
    experiment = client.get_experiment_by_name("regft")
    found = {}
    for run in client.search_runs([experiment.experiment_id], "", ViewType.ALL):
        history = {
            name: sorted((m.step, m.timestamp, m.value) for m in client.get_metric_history(run.info.run_id, name))
            for name in run.data.metrics
        }
        info = run.info
        files = {p.relative_to(root / "mlartifacts" / info.run_id).as_posix() for p in _files(root, info.run_id)}
        tags = {name: value for name, value in run.data.tags.items() if name != "mlflow.parentRunId"}
        datasets = [
            (d.dataset.name, d.dataset.digest, d.dataset.source, d.dataset.profile, [(t.key, t.value) for t in d.tags])
            for d in run.inputs.dataset_inputs
        ]
        place = info.artifact_uri.replace(info.run_id, "")
        own = (info.status, info.start_time, info.end_time, info.lifecycle_stage, place)
        found[info.run_name] = (own, tags, run.data.params, run.data.metrics, history, files, datasets)
    return found


def _files(root: Path, run_id: str) -> list[Path]:
    return [path for path in (root / "mlartifacts" / run_id).rglob("*") if path.is_file()]


def test_both_ways_write_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {}
    for way in ("bulk", "client"):
        tree = Tree(tmp_path / "project")
        tree.cell(VANILLA, [0, 1], failed=(1,))
        tree.cell(HYPE, [0, 1])
        tree.subsample("rte", 300, [0, 1])
        if way == "client":
            monkeypatch.setattr(bulk.Bulk, "takes", lambda *_: False)
        assert sync(tree.root, [VANILLA, HYPE], [0, 1]).created == 6
        written[way] = content(tree.root)
        (tree.root / "mlflow.db").unlink()
    times = {name: value[0][1:3] for name, value in written["client"].items()}
    assert times.keys() == written["bulk"].keys()
    for name, (own, *rest) in written["client"].items():
        mine, *others = written["bulk"][name]
        assert (mine[0], mine[3:]) == (own[0], own[3:])  # times are those of the files, written twice here
        assert others[:3] == rest[:3]
        assert {m: [(s, v) for s, _, v in h] for m, h in others[3].items()} == {
            m: [(s, v) for s, _, v in h] for m, h in rest[3].items()
        }
        assert others[4:] == rest[4:]


def test_values_that_the_database_cannot_hold_are_stored_as_mlflow_does() -> None:
    nan = bulk._point(Point("loss", math.nan, 1, 5))
    assert (nan["value"], nan["is_nan"]) == (0.0, True)
    assert bulk._point(Point("loss", -math.inf, 1, 5))["value"] == -1.7976931348623157e308

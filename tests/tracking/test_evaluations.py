"""What evaluations found is in MLflow beside the scores, also when they are switched on later."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from regft_core.tracking.sync import sync
from tests.tracking.tree import VANILLA, Tree


def client(root: Path) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(f"sqlite:///{root / 'mlflow.db'}")


def seeds(root: Path) -> dict[str, Any]:
    return {run.data.tags["seed"]: run for run in client(root).search_runs(["1"], "tags.`regft.kind` = 'run'")}


def evaluation(tree: Tree, name: str, scalars: dict[str, dict[str, float]]) -> None:
    runs = [{"seed": seed, "key": "k", "status": "ok", "scalars": scalars, "tables": {}} for seed in (0, 1)]
    cell = {"method": VANILLA.method, "task": VANILLA.task, "size": VANILLA.size}
    shared = {"cell": cell, "evaluation": name, "description": name, "options": {}, "machine_dependent": False}
    tree.write(f"work/evaluate/{VANILLA.directory}/evaluations/{name}.json", shared | {"runs": runs})


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.subsample("rte", 300, [0, 1])
    tree.cell(VANILLA, [0, 1])
    return tree


def test_they_are_metrics_of_the_runs_and_means_of_the_cell(tree: Tree) -> None:
    evaluation(tree, "calibration", {"dev": {"ece_width": 0.25}, "run": {"temperature": 2.0}})
    sync(tree.root, [VANILLA], [0, 1])
    run = seeds(tree.root)["0"]
    assert run.data.metrics["calibration.dev.ece_width"] == 0.25
    assert run.data.metrics["calibration.run.temperature"] == 2.0
    (cell,) = client(tree.root).search_runs(["1"], "tags.`regft.kind` = 'cell'")
    assert cell.data.metrics["calibration.dev.ece_width"] == 0.25
    assert not sync(tree.root, [VANILLA], [0, 1]).updated


def test_switching_one_on_adds_to_the_runs_and_off_says_so(tree: Tree) -> None:
    sync(tree.root, [VANILLA], [0, 1])
    before = seeds(tree.root)
    evaluation(tree, "calibration", {"dev": {"ece_width": 0.25, "old": 1.0}})
    result = sync(tree.root, [VANILLA], [0, 1])
    assert (result.created, result.superseded) == (0, 0)
    on = seeds(tree.root)
    assert {run.info.run_id for run in on.values()} == {run.info.run_id for run in before.values()}
    assert on["1"].data.metrics["calibration.dev.ece_width"] == 0.25
    folder = client(tree.root).download_artifacts(on["1"].info.run_id, "evaluations/calibration.json")
    assert json.loads(Path(folder).read_text())["scalars"]["dev"]["ece_width"] == 0.25
    # Another number of bins: the numbers change, one is gone.
    evaluation(tree, "calibration", {"dev": {"ece_width": 0.125}})
    assert sync(tree.root, [VANILLA], [0, 1]).created == 0
    changed = seeds(tree.root)["1"].data.metrics
    assert changed["calibration.dev.ece_width"] == 0.125
    assert math.isnan(changed["calibration.dev.old"])
    assert changed["loss"] == before["1"].data.metrics["loss"]
    (tree.root / f"work/evaluate/{VANILLA.directory}/evaluations/calibration.json").unlink()
    assert sync(tree.root, [VANILLA], [0, 1]).created == 0
    off = seeds(tree.root)["1"].data
    assert math.isnan(off.metrics["calibration.dev.ece_width"])
    assert off.metrics["dev.accuracy"] == before["1"].data.metrics["dev.accuracy"]
    assert "regft.evaluations" not in off.tags
    assert not sync(tree.root, [VANILLA], [0, 1]).updated

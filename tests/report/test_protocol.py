"""Average columns, trials and per-task protocols in the report, on cases whose answers are known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from regft_core.report.averages import average_columns
from regft_core.schema.params import ReportConfig, weights_of
from regft_core.statistics.learning_curve import expected_max
from tests.report.synthetic import Arm, Task, edited

SEEDS = range(4)
GRID = {"training.learning_rate": [1e-5, 2e-5, 3e-5]}
SCORES = [[0.5, 0.7, 0.6], [0.8, 0.6, 0.7], [0.6, 0.9, None], [0.5, 0.55, 0.6]]


@pytest.fixture(scope="module")
def grid(make: Any) -> Any:
    tasks = {
        "mnli": Task(metrics=("accuracy",), ood=("mnli_mm",)),
        "rte": Task(metrics=("accuracy",), ood=()),
        "scores": Task("regression", ("mse",), ood=()),
    }
    return make({"vanilla": Arm(0.6), "hype_n": Arm(0.85)}, tasks, seeds=SEEDS, out="reports")


def test_weights_of_parts() -> None:
    assert weights_of(["a", ["b", "b/other"]]) == {("a", "dev"): 0.5, ("b", "dev"): 0.25, ("b", "other"): 0.25}


def test_a_mean_over_tasks_and_sets(grid: Any) -> None:
    config = ReportConfig(bootstrap_samples=500, averages={"all": ["rte", ["mnli", "mnli/mnli_mm"]]})
    report = grid.again(config=config)
    (average,) = report.averages
    assert average.parts == ("rte", "mnli", "mnli/mnli_mm")
    rows = {(block.task, row.method): row for block in report.blocks for row in block.rows}
    for line in average.lines:
        rte, mnli = rows["rte", line.method].scores, rows["mnli", line.method].scores
        inner = (mnli["dev"]["accuracy"].estimate.mean + mnli["mnli_mm"]["accuracy"].estimate.mean) / 2
        assert line.value.value == pytest.approx((rte["dev"]["accuracy"].estimate.mean + inner) / 2)
        assert line.value.low < line.value.value < line.value.high
    vanilla, hype = average.lines if average.lines[0].method == "vanilla" else average.lines[::-1]
    assert vanilla.difference is None
    assert hype.difference.value == pytest.approx(hype.value.value - vanilla.value.value)
    assert hype.difference.low > 0
    assert "rte, mnli, mnli/mnli_mm" in report.html.replace(" <small>(accuracy)</small>", "")
    numbers = json.loads((grid.root / "reports" / "results.json").read_text())["averages"]["all-300"]
    assert numbers["hype_n"]["difference"] == pytest.approx(hype.difference.value)


def test_parts_of_one_run_stay_paired(grid: Any) -> None:
    """Averaging a set with itself changes nothing: its replicates must not be taken for independent ones."""
    blocks = grid.report.blocks
    (alone,) = average_columns(blocks, {"x": ["mnli"]})
    (twice,) = average_columns(blocks, {"x": ["mnli", "mnli"]})
    assert alone.lines[1].value == twice.lines[1].value
    (both,) = average_columns(blocks, {"x": ["mnli", "rte"]})
    width = both.lines[1].value.high - both.lines[1].value.low
    assert width < alone.lines[1].value.high - alone.lines[1].value.low  # tasks are independent


def tuned(seed: int, selection: str) -> dict[str, Any]:
    values = [{"training.learning_rate": rate} for rate in GRID["training.learning_rate"]]
    scores = SCORES[seed]
    best = max(range(3), key=lambda i: -1.0 if scores[i] is None else scores[i])
    trials = [
        {"trial": i, "values": values[i], "key": "k", "status": "ok", "error": None, "score": scores[i]}
        | {"seconds": 2.0, "steps": 57}
        for i in range(3)
    ]
    return {"values": values[best], "chosen": best, "selection": selection, "seconds": 6.0} | {
        "metric": "accuracy",
        "trials": trials,
    }


def with_trials(root: Path, method: str, selection: str) -> None:
    with edited(root / "work" / "finetune" / method / "rte" / "300" / "manifest.json") as manifest:
        for run in manifest["runs"]:
            run["tuned"] = tuned(run["seed"], selection)


def test_trials_are_shown_with_the_expected_best(grid: Any) -> None:
    assert grid.report.tuned == ()
    assert 'id="tuning"' not in grid.report.html
    with_trials(grid.root, "hype_n", "split")
    report = grid.again()
    arms = {arm.method: arm for arm in report.tuned}
    assert {arm.block for arm in report.tuned} == {"rte-300"}
    assert arms["vanilla"].trials == 0
    arm = arms["hype_n"]
    assert (arm.trials, arm.failed) == (3, 1)
    assert dict(arm.chosen) == {"training.learning_rate 2e-05": 2, "training.learning_rate 1e-05": 1} | {
        "training.learning_rate 3e-05": 1
    }
    known = [[score for score in scores if score is not None] for scores in SCORES]
    for k, value in arm.shown:  # to 2, for one seed finished no more
        assert value == pytest.approx(math.fsum(expected_max(scores, k) for scores in known) / 4)
    assert [k for k, _ in arm.shown] == [1, 2]
    assert "rte-300: methods were tuned with different numbers of trials (vanilla 0, hype_n 3)" in report.warnings
    assert "training.learning_rate 2e-05 (2)" in report.html
    with_trials(grid.root, "hype_n", "dev_as_published")
    assert any("chosen on the validation set" in text for text in grid.again().warnings)

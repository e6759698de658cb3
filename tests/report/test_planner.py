"""The planner says the seeds that a difference takes from what is at hand, and what to run first where nothing is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.report.planner import needs, table
from regft_core.schema.report import ReportConfig


@pytest.fixture(scope="module")
def project(make: Any, synthetic: Any) -> Any:
    arms = {
        "vanilla": synthetic.Arm(0.72),
        "good": synthetic.Arm(0.8),
        "good_control": synthetic.Arm(0.74, control_for="good"),
    }
    built = make(arms, {"sst2": synthetic.Task(n=700)}, seeds=range(6))
    grid = SimpleNamespace(tasks=("sst2",), sizes=(300,), seeds=range(6))
    params = SimpleNamespace(grid=grid, report=ReportConfig(), task_settings={})
    return SimpleNamespace(root=built.root, params=params, methods=built.methods, cells=built.cells)


def two_seconds(cell: Any) -> float:
    return 2.0


def test_every_pair_is_planned_from_its_own_spread(project: Any) -> None:
    found = needs(project, two_seconds, 1.0)
    assert [(need.pair.method, need.pair.other, need.pair.role) for need in found] == [
        ("good", "vanilla", "reference"),
        ("good", "good_control", "control"),
        ("good_control", "vanilla", "reference"),
    ]
    for need in found:
        assert need.estimate.n == 6
        assert need.plan.floor < need.plan.shown
        assert need.comparisons == (2 if need.pair.role == "reference" else 1)
        assert need.confidence == 0.95


def test_what_it_costs(project: Any) -> None:
    (need, *_) = needs(project, two_seconds, 4.0)
    assert need.plan.safe is not None
    assert need.runs == 2 * max(0, need.plan.safe - 6)
    assert need.seconds == need.runs * 2.0
    assert needs(project, lambda cell: None, 4.0)[0].seconds is None


def test_a_looked_at_pair_is_planned_for_its_next_look(project: Any, tmp_path: Path) -> None:
    from regft_core.report import Inputs, write_report

    file = tmp_path / "looks.jsonl"
    config = ReportConfig(bootstrap_samples=100)
    write_report(Inputs(project.root, project.cells, range(6), config, project.methods, looks=file), tmp_path / "r")
    (need, *_) = needs(project, two_seconds, 4.0, file)
    assert (need.looks, need.confidence) == (1, pytest.approx(1 - 0.05 / 6))
    assert need.plan.seeds >= needs(project, two_seconds, 4.0)[0].plan.seeds
    assert "1 of these pairs were looked at before" in table([need], 4.0)


def test_without_results_it_says_what_to_run_first(project: Any, tmp_path: Path) -> None:
    empty = SimpleNamespace(**{**vars(project), "root": tmp_path})
    found = needs(empty, two_seconds, 1.0)
    assert all(need.plan is None for need in found)
    text = table(found, 1.0)
    assert "no spread seen yet for good - vanilla on sst2-300" in text
    assert "at least 3 seeds" in text
    assert table([], 1.0).startswith("no pair of methods")

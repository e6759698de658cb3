"""The planner says the seeds that a difference takes from the runs at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import DataError
from regft_core.report import Inputs, write_report
from regft_core.report.planner import needs, table
from tests.report.synthetic import Arm, Task


@pytest.fixture(scope="module")
def inputs(make: Any) -> Inputs:
    arms = {
        "vanilla": Arm(0.72),
        "good": Arm(0.8),
        "good_control": Arm(0.74, control_for="good"),
    }
    inputs: Inputs = make(arms, {"sst2": Task(n=700)}).inputs
    return inputs


def two_seconds(cell: Any) -> float:
    return 2.0


def test_every_pair_is_planned_from_its_own_spread_and_has_a_cost(inputs: Inputs) -> None:
    planned = needs(inputs, two_seconds, 4.0)
    compared = [need.comparison for need in planned]
    assert {(c.method, c.other, c.role, c.verdict.comparisons) for c in compared} == {
        ("good", "vanilla", "reference", 2),
        ("good", "good_control", "control", 1),
        ("good_control", "vanilla", "reference", 2),
    }
    for need in planned:
        assert need.plan is not None
        assert need.plan.floor < need.plan.shown
        assert need.confidence == 0.95
        assert need.plan.safe is not None
        assert need.runs == 2 * max(0, need.plan.safe - 6)
        assert need.seconds == need.runs * 2.0
    assert needs(inputs, lambda cell: None, 4.0)[0].seconds is None
    text = table(planned, 4.0)
    assert all(f"{c.method} - {c.other} ({c.role}) on sst2-300\n{c.verdict.word}  " in text for c in compared)
    assert {c.verdict.word for c in compared} == {"better", "no difference shown"}


def test_a_looked_at_pair_is_planned_for_its_next_look(inputs: Inputs, tmp_path: Path) -> None:
    looked = replace(inputs, looks=tmp_path / "looks.jsonl")
    assert needs(looked, two_seconds, 4.0)[0].looks == 0
    assert needs(looked, two_seconds, 4.0)[0].looks == 0  # planning is no look
    write_report(looked, None)
    (need, *_) = needs(looked, two_seconds, 4.0)
    (first, *_) = needs(inputs, two_seconds, 4.0)
    assert (need.looks, need.confidence) == (1, pytest.approx(1 - 0.05 / 6))
    assert need.plan is not None
    assert first.plan is not None
    assert need.plan.seeds >= first.plan.seeds  # type: ignore[operator]
    assert "1 of these pairs were looked at before" in table([need], 4.0)


def test_without_two_seeds_or_any_run_it_says_what_to_run_first(inputs: Inputs, tmp_path: Path) -> None:
    text = table(needs(replace(inputs, seeds=[0]), two_seconds, 1.0), 1.0)
    assert "no spread seen yet for " in text
    assert "good - vanilla on sst2-300" in text
    with pytest.raises(DataError, match="subsample"):
        needs(replace(inputs, root=tmp_path), two_seconds, 1.0)
    assert table([], 1.0).startswith("no pair of methods")

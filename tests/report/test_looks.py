"""Adding seeds after a look is paid for with a wider interval; the planner tells how many a difference takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import DataError, StoreError
from regft_core.report import write_report
from regft_core.report.formatting import point_of
from regft_core.report.planner import needs, table
from regft_core.report.read_grid import Inputs
from regft_core.schema.params import ReportConfig
from regft_core.statistics.forecast import detectable_with
from tests.errors import raises_code
from tests.report.grids import terminal
from tests.report.synthetic import Arm, Task, edited


@pytest.fixture
def project(make: Any) -> Any:
    arms = {"vanilla": Arm(0.72), "good": Arm(0.8), "good_control": Arm(0.72, control_for="good")}
    return make(arms, {"sst2": Task(n=300)}, seeds=range(8))


def report(project: Any, n: int, file: Path, **config: Any) -> Any:
    settings = ReportConfig(bootstrap_samples=500, **config)
    return project.again(None, seeds=tuple(range(n)), config=settings, looks=file)


def against(found: Any, role: str = "reference") -> Any:
    return found.blocks[0].row("good").against(role)[0]


def test_the_same_seeds_again_or_other_runs_of_the_same_names_are_no_second_look(project: Any, tmp_path: Path) -> None:
    file = tmp_path / "store" / "looks.jsonl"
    first = report(project, 3, file)
    text = file.read_text()
    again = report(project, 3, file)
    assert file.read_text() == text
    assert against(first).look is against(again).look is None
    assert again.results == first.results
    assert against(first).estimate == against(project.again(seeds=tuple(range(3)))).estimate
    with edited(file) as lines:
        for line in lines:
            line["runs"] = dict.fromkeys(line["runs"], "0" * 16)
    assert against(report(project, 6, file)).look is None


def test_added_seeds_are_a_second_look_with_a_wider_interval(project: Any, tmp_path: Path) -> None:
    file = tmp_path / "looks.jsonl"
    report(project, 3, file)
    second = report(project, 6, file)
    for role in ("reference", "control"):
        found = against(second, role)
        assert (found.look.number, found.look.seeds) == (2, (3, 6))
        assert found.verdict.confidence == pytest.approx(1 - 0.05 / 6)
        assert found.verdict.low < found.estimate.low < found.estimate.high < found.verdict.high
    said = "seeds were added or changed after a look (2 looks, at 3 and 6 seeds)"
    assert any(said in text for text in second.warnings)
    assert "and 2 looks)" in " ".join(second.blocks[0].decision.sentences)
    assert said in terminal(second, 150)
    look = second.results["sst2-300"]["good"]["versus_reference"]["vanilla"]["dev"]["look"]
    assert (look["number"], look["seeds"]) == (2, [3, 6])
    third = against(report(project, 8, file))
    assert (third.look.number, third.look.seeds) == (3, (3, 6, 8))
    # Back at the seeds of the first look: still the first, but no longer the only one.
    back = against(report(project, 3, file)).look
    assert (back.number, back.seeds) == (1, (3, 6, 8))


def test_a_turned_or_renamed_pair_of_the_same_runs_is_looked_at_again(project: Any, tmp_path: Path) -> None:
    file = tmp_path / "looks.jsonl"
    report(project, 3, file)
    with edited(file) as lines:
        for line in lines:
            line["method"] = "before"
    turned = report(project, 6, file, reference="good").blocks[0].row("vanilla").against("reference")[0]
    assert (turned.look.number, turned.look.seeds) == (2, (3, 6))


def test_a_torn_line_is_passed_over_and_a_wrong_file_is_an_error(project: Any, tmp_path: Path) -> None:
    file = tmp_path / "looks.jsonl"
    report(project, 3, file)
    with file.open("a") as stream:
        stream.write('{"block": "sst2-300", "meth\n')
    assert against(report(project, 6, file)).look.number == 2
    file.write_bytes(b"\xff\xfe")
    with raises_code(StoreError, "cannot-read"):
        report(project, 6, file)


# -------------------------------------------------------------------------------------------------------- the planner


@pytest.fixture(scope="module")
def inputs(make: Any) -> Inputs:
    arms = {"vanilla": Arm(0.72), "good": Arm(0.8), "good_control": Arm(0.74, control_for="good")}
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


def test_the_point_of_a_metric_without_bounds_is_that_of_all_methods_that_finished(make: Any) -> None:
    arms, tasks = {"vanilla": Arm(0.3), "good": Arm(0.95)}, {"stars": Task("regression", ("mse",), n=80, ood=())}
    dead = {"dead": Arm(failed=dict.fromkeys(range(6), "NaN"))}
    alone, beside = make(arms, tasks), make(dead | arms, tasks)
    row, other = (built.report.blocks[0].row for built in (alone, beside))
    assert row("good").comparisons[0].verdict == other("good").comparisons[0].verdict
    point = point_of("mse", [row(name).scores["dev"]["mse"].estimate.mean for name in arms])
    (need,) = needs(alone.inputs, two_seconds, 60)
    plan: Any = need.plan
    counts, sample = (plan.seeds, plan.seeds - 1, 6), need.comparison.sample
    more, fewer, shown = (detectable_with(n, sample, 1, 0.05, point) for n in counts)
    assert plan.shown == pytest.approx(shown, rel=1e-9)
    assert more <= 60 * point < fewer  # of the points of the decision

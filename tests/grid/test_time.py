"""The time of a grid: from a measured step where there is an encoder, else from an assumed speed that is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.fit.time import EACH, seconds_per_run
from regft_core.grid import step_times, time
from regft_core.grid.keys import stale_cells
from regft_core.grid.rates import Measured, Rates, assumed_here, known, rates_of
from regft_core.grid.step_times import StepTimes, buckets
from regft_core.grid.time import estimate, spend, still_to_train
from regft_core.hooks.registry import discover
from regft_core.io.reading import read_json
from regft_core.runs.project import open_project
from regft_core.settings.cost import plan_rows
from regft_core.settings.grid import Cell, cells
from stages import config
from tests.grid.conftest import change, make_project, plan, project, reproduce, template

__all__ = ["make_project", "project", "template"]

TIMES = {"start": 2.0, "load": 0.5, "update": 0.1, "train": {"16": 0.01, "32": 0.02}, "judge": {"16": 0.1, "32": 0.2}}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was asked of the process that measures; it answers with ``TIMES``."""
    asked: list[dict[str, Any]] = []

    def answer(request: Any, environment: Any) -> dict[str, Any]:
        asked.append(request)
        lengths = [str(length) for length in request["lengths"]]
        of = {part: {length: TIMES[part][length] for length in lengths} for part in ("train", "judge")}  # type: ignore[index]
        return {**TIMES, **of}

    monkeypatch.setattr(step_times, "_measured_apart", answer)
    return asked


def test_few_lengths_are_measured_up_to_the_longest_row_or_what_the_model_reads() -> None:
    assert buckets(9, 128) == [16]
    assert buckets(37, 128) == [16, 128]
    assert buckets(500, 512) == [16, 128, 512]
    assert buckets(500, 100) == [16, 100]
    assert buckets(12, 8) == [8]


def test_costs_become_seconds_by_stage_and_method(project: Path) -> None:
    opened = open_project(project)
    rows = plan_rows(opened, discover(), lambda cell: {0} if cell.method == "vanilla" else set())
    found = spend(opened, rows, lambda cell: Rates(train=0.01, judge=3.0, load=1.0, start=5.0))
    by_method = {row.cell.method: row for row in rows}
    vanilla = by_method["vanilla"]
    assert vanilla.cost is not None
    # One of two seeds is there; batches of 8.
    assert found.methods["vanilla"] == pytest.approx(vanilla.cost * 8 * 0.01 + 1.0 + 3.0)
    assert found.run_seconds(vanilla.cell) == pytest.approx(found.methods["vanilla"])
    searched = by_method["weight_mixup"]
    assert searched.search
    assert found.stages["search"] == pytest.approx(2 * searched.search * 8 * 0.01 + 5.0)
    assert found.stages["evaluate"] == pytest.approx(3.0 * 5)
    assert found.seconds == pytest.approx(sum(found.methods.values()) + 10.0)  # one at a time, and two starts
    assert found.line().startswith("time: about ")
    assert "measured on this machine, 1 run at a time" in found.line()


def test_a_step_is_measured_once_for_all_methods_and_kept(project: Path, measured: list[dict[str, Any]]) -> None:
    opened = open_project(project)
    found = estimate(opened, shortest=0.0)
    assert not found.missing
    assert [request["lengths"] for request in measured] == [[16, 32]]
    assert measured[0]["threads"] == 1
    assert estimate(opened, shortest=0.0) == found
    assert len(measured) == 1
    file = project / ".regft" / "times.json"
    (kept,) = read_json(file).values()
    assert (kept["precision"], kept["batch_size"]) == ("fp32", 8)
    change(project, training={"batch_size": 4})
    estimate(open_project(project), shortest=0.0)
    assert len(measured) == 2
    file.write_text("{")
    estimate(open_project(project), shortest=0.0)
    assert len(measured) == 3


def test_jobs_are_ordered_by_what_was_measured_before_and_measure_nothing(
    project: Path, measured: list[dict[str, Any]]
) -> None:
    opened = open_project(project)
    cell = next(cell for cell in cells(opened) if cell.method == "vanilla")
    assert known(opened)(cell) == assumed_here(opened)(cell)
    assert not measured
    estimate(opened, shortest=0.0)
    assert known(opened)(cell) == Measured(opened)(cell) != assumed_here(opened)(cell)
    assert len(measured) == 1


def test_sets_of_other_lengths_have_their_own_time() -> None:
    times = StepTimes(0, 0, update=0.8, train={16: 0.01, 32: 0.03}, judge={16: 0.1, 32: 0.2})
    short, middle = ({"n": 10, "rows": 1, "curve": [length] * 4} for length in (16, 24))
    pairs = {"n": 5, "rows": 2, "curve": [16] * 4}
    training: Any = type("T", (), {"bucket_batches": 50, "batch_size": 8, "accumulation": 2})
    found = rates_of(times, {"train": middle, "dev": short, "ood": pairs}, training)
    assert found.train == pytest.approx(0.02 + 0.8 / 16)
    assert found.judge == pytest.approx(10 * 0.1 + 5 * 2 * 0.1)
    assert found.epoch == pytest.approx(1.0)
    # Rows that are not sorted are padded to the longest of their batch.
    spread = {"n": 10, "rows": 1, "curve": [16, 16, 16, 32]}
    mixed: Any = type("T", (), {"bucket_batches": 1, "batch_size": 8, "accumulation": 1})
    assert rates_of(times, {"train": spread}, mixed).train > rates_of(times, {"train": spread}, training).train


def test_nothing_is_measured_for_seconds_or_without_the_encoder(
    project: Path, measured: list[dict[str, Any]], capsys: Any
) -> None:
    assert "too short (under 60 s)" in estimate(open_project(project)).line()
    change(project, model={"name": "FacebookAI/roberta-base", "revision": "e2da8e2f811d1448a5b465c236feacd80ffbac7b"})
    found = estimate(open_project(project), shortest=0.0)
    assert found.missing.startswith("encoder 'FacebookAI/roberta-base' is not on this disk")
    assert found.missing.endswith("-> fetch it: regft fetch; of a preset: --preset NAME")
    assert found.missing in found.line()
    assert found.seconds > 0
    change(project, execution={"executor": "slurm", "device": "auto"})
    assert "executor 'slurm' trains on other machines" in estimate(open_project(project)).line()
    assert measured == []


def test_fit_counts_what_a_run_takes_beside_its_steps(project: Path) -> None:
    opened = open_project(project)
    assert 0 < estimate(opened).runs[next(cell for cell in cells(opened) if cell.method == "vanilla")] < EACH
    assert set(seconds_per_run(opened).values()) == {EACH}


def test_a_measurement_that_fails_is_said_with_its_reason(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times.sys, "executable", "/bin/false")
    line = estimate(open_project(project), shortest=0.0).line()
    assert "assumed speed" in line
    assert "not measured: the time of a step could not be measured: no message" in line


def test_a_grid_that_is_done_asks_for_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reproduce(project) == {}
    plan(project)
    opened = open_project(project)
    assert stale_cells(project) == set()
    with monkeypatch.context() as patch:
        patch.setattr(time, "estimate", lambda *_: pytest.fail("estimated"))
        assert still_to_train(opened, [cell.directory for cell in cells(opened)]) is None  # all are in the run store
    change(project, grid={"seeds": [0, 1, 2]})
    plan(project)
    found = still_to_train(open_project(project), stale_cells(project))
    assert found is not None
    assert set(found.methods) == {"vanilla", "hype_n", "weight_mixup"}
    assert {cell.method for cell in cells(opened)} == set(found.methods)


def test_the_commands_say_it(project: Path, capsys: Any) -> None:
    assert config.main(["plan", "--root", str(project)]) == 0
    printed = capsys.readouterr().out
    assert "time: about " in printed
    assert "assumed speed, 1 run at a time" in printed


def test_a_real_measurement_of_a_tiny_encoder(project: Path) -> None:
    opened = open_project(project)
    found = estimate(opened, shortest=0.0)
    assert not found.missing, found.line()
    (kept,) = read_json(project / ".regft" / "times.json").values()
    assert all(seconds > 0 for part in ("train", "judge") for seconds in kept[part].values())
    assert kept["update"] > 0
    one = found.run_seconds(Cell("vanilla", "cue_sentence", 24))
    assert one is not None
    assert one > 0

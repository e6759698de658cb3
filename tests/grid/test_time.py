"""The time of a grid: from a measured step where there is an encoder, else from an assumed speed that is named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.disk.reading import read_json
from regft_core.grid import time
from regft_core.grid.cell_keys import stale_cells
from regft_core.grid.executors import JobFailure, JobsFailed
from regft_core.grid.time import FORWARD, GPU_SPEED, SetSize, assumed, estimate, set_sizes, spend, still_to_train
from regft_core.models.source import encoder_weights
from regft_core.runs.opened_project import open_project
from regft_core.settings.cost import PlanRow, plan_rows
from regft_core.settings.project import Cell, cells
from tests.grid.conftest import change, make_project, plan, project, template
from tests.small_project import stage

__all__ = ["make_project", "project", "template"]

#: Seconds of a token.
STEP = 0.001
#: 10 tokens of each row.
SIZES = {"train": SetSize(24, 10), "dev": SetSize(30, 10)}
#: Seconds of a plain step over a batch of 8.
BATCH = 8 * 10 * STEP
EVALUATION = 30 * 10 * STEP * FORWARD


@pytest.fixture(autouse=True)
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where measured times are kept."""
    monkeypatch.setattr(time, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / time.FILE


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Requests to the process that measures; it answers with ``STEP``."""
    asked: list[dict[str, Any]] = []

    def answer(requests: Any, function: Any, **order: Any) -> list[float]:
        asked.extend(requests)
        return [STEP]

    monkeypatch.setattr(time, "run_all", answer)
    monkeypatch.setattr(time, "SHORTEST", 0.0)
    return asked


def test_costs_become_seconds_by_stage_and_cell(project: Path) -> None:
    opened = open_project(project)
    rows = plan_rows(opened, lambda cell: {0} if cell.method == "vanilla" else set())
    found = spend(opened, rows, lambda cell: STEP, lambda task, encoder: SIZES)
    by_method = {row.cell.method: row for row in rows}
    vanilla = by_method["vanilla"]
    # One of two seeds is cached; batches of 8.
    assert found.cells[vanilla.cell] == pytest.approx(vanilla.cost * BATCH + EVALUATION)
    assert found.runs[vanilla.cell] == pytest.approx(found.cells[vanilla.cell])
    assert found.seconds == pytest.approx(sum(found.cells.values()))  # one at a time
    assert found.line().startswith("time: about ")


def test_a_step_is_measured_once_for_all_methods_and_kept(
    project: Path, times: Path, requests: list[dict[str, Any]]
) -> None:
    opened = open_project(project)
    found = estimate(opened)
    assert "measured" in found.speed
    assert [request["length"] for request in requests] == [32]
    assert estimate(opened) == found
    assert len(requests) == 1
    change(project, training={"batch_size": 4})
    estimate(open_project(project))
    assert len(requests) == 2
    times.write_text("{")
    change(project, execution={"executor": "ray"})  # a cluster of this machine, as it has no address
    assert "measured" in estimate(open_project(project)).speed
    assert len(requests) == 3


def test_sizes_are_those_of_the_prepared_rows(project: Path) -> None:
    opened = open_project(project)
    task = opened.params.grid.tasks[0]
    shutil.rmtree(project / "work")
    assert set_sizes(opened, task, opened.model(task)) == {"train": SetSize(0, 32)}
    plan(project)
    lengths = read_json(project / "work" / "lengths" / f"{task}.json")["sets"]
    counts = read_json(project / "work" / "datasets" / task / "task.json")["sets"]
    sizes = set_sizes(opened, task, opened.model(task))
    assert set(sizes) == set(lengths) == {"train", *counts}
    for name, size in sizes.items():
        median, p95 = (min(32, lengths[name][part]) for part in ("median", "p95"))
        assert median / 2 < size.tokens <= p95
        assert size.rows == (counts[name]["n"] if name in counts else 0)


def test_nothing_is_measured_for_seconds_or_without_the_encoder(
    project: Path, requests: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "SHORTEST", 60.0)
    assert "too short" in estimate(open_project(project)).note
    change(project, execution={"executor": "slurm", "device": "auto"})
    elsewhere = estimate(open_project(project))
    assert "slurm" in elsewhere.note
    change(project, execution={"device": "cpu"})
    assert estimate(open_project(project)).seconds > 100 * elsewhere.seconds
    change(project, model={"name": "FacebookAI/roberta-base", "revision": "e2da8e2f811d1448a5b465c236feacd80ffbac7b"})
    change(project, execution={"executor": "serial", "device": "cpu"})
    found = estimate(open_project(project))
    assert "not on this disk" in found.note
    assert found.note in found.line()
    assert found.seconds > 0
    assert requests == []


def test_a_measurement_that_fails_leaves_the_assumed_speed_and_its_reason(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(jobs: Any, function: Any, **order: Any) -> None:
        raise JobsFailed([JobFailure(0, jobs[0], "no memory")], [None])

    monkeypatch.setattr(time, "SHORTEST", 0.0)
    monkeypatch.setattr(time, "run_all", fail)
    found = estimate(open_project(project))
    assert "could not be measured" in found.note
    assert found.seconds > 0


def test_a_grid_that_is_done_asks_for_nothing(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = done
    plan(project)
    opened = open_project(project)
    assert stale_cells(project) == set()
    with monkeypatch.context() as patch:
        patch.setattr(time, "estimate", lambda *_: pytest.fail("estimated"))
        assert still_to_train(opened, [cell.directory for cell in cells(opened)]) is None  # all are in the run store
    change(project, grid={"seeds": [0, 1, 2]})
    plan(project)
    found = still_to_train(open_project(project), stale_cells(project))
    assert set(found.cells) == set(cells(opened))


def test_a_real_measurement_of_a_tiny_encoder(project: Path, times: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(time, "SHORTEST", 0.0)
        found = estimate(open_project(project))
    assert "measured" in found.speed, found.line()
    (seconds,) = read_json(times).values()
    assert seconds > 0
    assert found.runs[Cell("vanilla", "cue_sentence", 24)] > 0
    assert "assumed speed of a core, 1 run at a time" in " ".join(
        stage(project, "plan").stdout.split()
    )  # it is too short


def test_the_assumed_speed_of_a_gpu_is_six_operations_per_weight_and_token(project: Path) -> None:
    opened = open_project(project)
    known, unknown = cells(opened)[:2]
    weights = encoder_weights(opened.params.model.name, project)
    # Plain steps of one run, with batches of 8 rows of 32 tokens, such that 3 runs take 5 hours.
    steps = 5 * 3600 * GPU_SPEED["fp32"] / (3 * 32 * 6 * weights) / 8
    rows = [PlanRow(known, 3, 0, 10, 1, steps), PlanRow(unknown, 2, 0, *[None] * 3)]
    found = spend(opened, rows, lambda cell: assumed(opened, cell.task, on_cpu=False))
    assert (found.unknown, found.cells) == (2, {known: pytest.approx(5 * 3600)})

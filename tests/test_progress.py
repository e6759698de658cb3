"""One line for the whole stage, with the time left; what was taken from the run store is no progress."""

from __future__ import annotations

import io
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from regft_core import progress
from regft_core.pace import Pace
from regft_core.progress import ProgressBoard, ProgressWriter, position

RUNS = ["16 seed 0", "16 seed 1", "16 seed 2"]


@pytest.fixture
def board() -> Any:
    with ProgressBoard("finetune hype_n reviews", RUNS, {"finetune": 1.0}) as made:
        yield made


def test_a_run_that_never_reported_was_in_the_store(board: ProgressBoard) -> None:
    assert board.ended(RUNS[0]) is False
    ProgressWriter(board.folder, RUNS[1], "finetune")  # even one that ends before its first step
    assert board.ended(RUNS[1]) is True
    assert board.states() == {}


def test_the_share_counts_what_is_computed_only(board: ProgressBoard) -> None:
    assert board.share_done(board.states()) == 0.0
    board.ended(RUNS[0])  # from the store: two are left
    ProgressWriter(board.folder, RUNS[1], "finetune")(5, 10, 0, 0.4, 1.0)
    assert board.share_done(board.states()) == 0.25
    board.ended(RUNS[1])
    assert board.share_done(board.states()) == 0.5
    assert board.summary({}).startswith("2 of 3 runs")
    board.ended(RUNS[2])
    assert board.share_done(board.states()) == 1.0


def test_the_time_left_follows_from_the_pace(board: ProgressBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    at = {RUNS[0]: {"phase": "finetune", "step": 0, "total": 100}}
    now = 1000.0
    assert board.seconds_left({}) is None  # workers start
    assert board.summary(at) == "0 of 3 runs"
    now, at[RUNS[0]]["step"] = 1040.0, 10
    assert board.summary(at) == "0 of 3 runs"  # it may have loaded libraries until now
    now, at[RUNS[0]]["step"] = 1100.0, 60
    assert board.summary(at) == "0 of 3 runs, about 5 min left"  # half of one of three took a minute


def simulated(works: list[float], fixed: float, workers: int, jitter: float) -> list[tuple[float, float | None]]:
    """(true time left, what was said) at every second since a job ended; a job takes ``fixed`` seconds and its work."""
    rng, said, now = random.Random(0), list[tuple[float, float | None]](), 25.0  # workers start
    jobs = {f"run {i}": work for i, work in enumerate(works)}
    pace, done, waits = Pace(jobs), dict.fromkeys(jobs, 0.0), dict.fromkeys(jobs, fixed)
    while open_ := [job for job in jobs if done[job] < jobs[job] or waits[job] > 0][:workers]:
        now += 1
        for job in open_:
            if waits[job] > fixed / 2 or done[job] >= jobs[job]:  # half before the work, half after it
                waits[job] -= 1
            else:
                done[job] += rng.uniform(1 - jitter, 1 + jitter)
            if done[job] >= jobs[job] and waits[job] <= 0:
                pace.ended(job, True, now)
        seen = [job for job in open_ if waits[job] <= fixed / 2 and (done[job] < jobs[job] or waits[job] > 0)]
        pace.at_work({job: min(1.0, done[job] / jobs[job]) for job in seen}, now)
        if fixed == 0 or (len(open_) < len(jobs) and any(done[job] >= jobs[job] and waits[job] <= 0 for job in jobs)):
            said.append((now, pace.left(now)))
    return [(now - at, left) for at, left in said]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize(
    ("works", "fixed"),
    [
        ([30.0, 35.0, 40.0] * 6, 0.0),
        ([60.0] * 4 + [30.0] * 8, 10.0),
        ([20.0] * 24, 20.0),
        ([120.0] * 6 + [1.0] * 6, 2.0),
    ],
)
def test_the_time_left_is_right_within_a_third(works: list[float], fixed: float, workers: int) -> None:
    """Work is declared right, up to a time that every job takes besides: nobody knows that before a job has ended."""
    said = simulated(works, fixed, workers, jitter=0.3)
    judged = [(truth, left) for truth, left in said if truth > 5 and left is not None]
    assert len(judged) > 0.9 * len(said) - 10
    right = [abs(left - truth) <= truth / 3 for truth, left in judged]
    assert sum(right) > 0.9 * len(right), [(t, round(w)) for (t, w), ok in zip(judged, right) if not ok]


def test_between_two_long_steps_the_time_left_does_not_grow() -> None:
    """A step of a search may take half a minute, and the job's place is known at its end only."""
    pace, steps, seconds = Pace({"one": 10.0, "two": 10.0}), 10, 20
    for now in range(steps * seconds):
        pace.at_work({"one": now // seconds / steps}, float(now))
        left, truth = pace.left(float(now)), 2 * steps * seconds - now
        assert left is None if now < 2 * seconds else abs(left - truth) < truth / 6


def test_what_is_counted_has_its_own_name() -> None:
    """The engine used to count its jobs as runs, beside another number of runs in the line above."""
    with ProgressBoard("finetune", RUNS, {}, called="jobs") as board:
        assert board.summary({}) == "0 of 3 jobs"


def test_a_later_phase_stands_after_the_earlier_ones() -> None:
    with ProgressBoard("search", RUNS[:1], {"search-0": 1.0, "search-1": 1.0, "soup": 2.0}) as board:
        ProgressWriter(board.folder, RUNS[0], "search-1")(1, 2, 0, None, 1.0)
        assert board.share_done(board.states()) == pytest.approx(1.5 / 4)
        ProgressWriter(board.folder, RUNS[0], "soup")(2, 2, 0, None, 1.0)
        assert board.share_done(board.states()) == 1.0


def test_positions_in_words() -> None:
    state = {"phase": "finetune", "unit": "step", "step": 20, "total": 32, "epoch": 2, "loss": 0.4124}
    assert position(state) == "finetune step 20/32, epoch 3, loss 0.412"
    assert position({**state, "phase": "evaluate", "unit": "row", "loss": None}) == "evaluate row 20/32"
    assert position({**state, "total": 0}) == "finetune starts"


def test_a_log_gets_one_line_for_the_stage(board: ProgressBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.01)
    printed = io.StringIO()  # not capsys, which loses what another thread writes while it is read
    monkeypatch.setattr(sys, "stderr", printed)
    with ProgressBoard("evaluate vanilla reviews", RUNS, {"evaluate": 1.0}) as other:
        ProgressWriter(other.folder, RUNS[0], "evaluate", unit="row")(30, 60, 0, None, 0.0)
        for _ in range(600):  # the thread may have drawn before the run wrote
            if "row 30/60" in printed.getvalue():
                break
            time.sleep(0.1)
    line = next(line for line in printed.getvalue().splitlines() if "row 30/60" in line)
    assert line.startswith("  evaluate vanilla reviews: 0 of 3 runs")
    assert line.endswith(" (16 seed 0: evaluate row 30/60)")


def test_a_board_that_is_gone_stops_no_run(board: ProgressBoard, tmp_path: Path) -> None:
    writer = ProgressWriter(str(tmp_path / "gone"), RUNS[0], "finetune")
    writer(1, 2, 0, None, 0.0)
    ProgressWriter(None, RUNS[0], "finetune")(1, 2, 0, None, 0.0)
    (Path(board.folder) / f"{RUNS[0]}.json").write_text(json.dumps({})[:1])
    assert board.states() == {}


def test_a_job_that_ended_while_its_position_was_read_is_not_at_work() -> None:
    """The thread that draws reads positions first; a job that was stored in between is in them."""
    pace = Pace({"a": 1.0, "b": 1.0})
    pace.at_work({"a": 0.1, "b": 0.1}, 1.0)
    pace.ended("a", False, 2.0)
    pace.at_work({"a": 0.5, "b": 0.5}, 3.0)
    assert pace.left(3.0) == pytest.approx(3.0)  # 0.4 of b took 2 s; it started 2 s ago

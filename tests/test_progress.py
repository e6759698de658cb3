"""One line for the whole stage, with the time left; what was taken from the run store is no progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regft_core import progress
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
    assert board.summary(0.5).startswith("2 of 3 runs, about ")
    assert board.summary(0.0) == "2 of 3 runs"
    board.ended(RUNS[2])
    assert board.share_done(board.states()) == 1.0


def test_the_time_left_follows_from_the_pace(board: ProgressBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: board._started + 60)
    assert board.seconds_left(0.25) == 180
    assert board.seconds_left(0.0) is None
    assert board.seconds_left(0.005) is None  # mostly the start of the workers
    assert board.summary(0.25) == "0 of 3 runs, about 3 min left"
    assert board.summary(0.5) == "0 of 3 runs, about 60 s left"


def test_what_is_counted_has_its_own_name() -> None:
    """The engine used to count its jobs as runs, beside another number of runs in the line above."""
    with ProgressBoard("finetune", RUNS, {}, called="jobs") as board:
        assert board.summary(0.0) == "0 of 3 jobs"


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


def test_a_log_gets_one_line_for_the_stage(
    board: ProgressBoard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.01)
    with ProgressBoard("evaluate vanilla reviews", RUNS, {"evaluate": 1.0}) as other:
        ProgressWriter(other.folder, RUNS[0], "evaluate", unit="row")(30, 60, 0, None, 0.0)
        printed = ""
        while "row 30/60" not in printed:  # the thread may have drawn before the run wrote
            printed += capsys.readouterr().err
    line = next(line for line in printed.splitlines() if "row 30/60" in line)
    assert line.startswith("  evaluate vanilla reviews: 0 of 3 runs, about ")
    assert line.endswith("left (16 seed 0: evaluate row 30/60)")


def test_a_board_that_is_gone_stops_no_run(board: ProgressBoard, tmp_path: Path) -> None:
    writer = ProgressWriter(str(tmp_path / "gone"), RUNS[0], "finetune")
    writer(1, 2, 0, None, 0.0)
    ProgressWriter(None, RUNS[0], "finetune")(1, 2, 0, None, 0.0)
    (Path(board.folder) / f"{RUNS[0]}.json").write_text(json.dumps({})[:1])
    assert board.states() == {}

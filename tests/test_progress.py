"""One line for the whole stage, with the time left; what was taken from the run store is no progress."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from regft_core import output
from regft_core.output import ProgressBoard, ProgressWriter

RUNS = ["16 seed 0", "16 seed 1", "16 seed 2"]


@pytest.fixture
def board() -> Any:
    with ProgressBoard("finetune", {run: {"finetune": 1.0} for run in RUNS}) as made:
        yield made


def test_the_share_counts_what_is_computed_only(board: ProgressBoard) -> None:
    assert board.share_done(board.states()) == 0.0
    board.ended(RUNS[0])  # from the store: two are left
    ProgressWriter(board.folder, RUNS[1], "finetune")(5, 10, 0, 0.4, 1.0)
    assert board.share_done(board.states()) == 0.25
    board.ended(RUNS[1])
    assert board.states() == {}
    assert board.share_done(board.states()) == 0.5
    assert board.summary({}).startswith("2 of 3 jobs")
    ProgressWriter(board.folder, RUNS[2], "finetune")  # even one that ends before its first step
    board.ended(RUNS[2])
    assert board.share_done(board.states()) == 1.0


def test_the_time_left_follows_from_the_pace(board: ProgressBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.time, "monotonic", lambda: now)
    at = {RUNS[0]: {"phase": "finetune", "step": 0, "total": 100}}
    now = 1000.0
    assert board.summary({}) == "0 of 3 jobs"  # workers start
    now, at[RUNS[0]]["step"] = 1040.0, 10
    assert board.summary(at) == "0 of 3 jobs"  # it may have loaded libraries until now
    now, at[RUNS[0]]["step"] = 1100.0, 60
    assert board.summary(at) == "0 of 3 jobs, about 5 min left"  # half of one of three took a minute


def test_a_later_phase_stands_after_the_earlier_ones() -> None:
    with ProgressBoard("search", {RUNS[0]: {"search-0": 1.0, "search-1": 1.0, "soup": 2.0}}) as board:
        ProgressWriter(board.folder, RUNS[0], "search-1")(1, 2, 0, None, 1.0)
        assert board.share_done(board.states()) == pytest.approx(1.5 / 4)
        ProgressWriter(board.folder, RUNS[0], "soup")(2, 2, 0, None, 1.0)
        assert board.share_done(board.states()) == 1.0


def test_a_log_gets_one_line_for_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LOG_SECONDS", 0.01)
    printed = io.StringIO()  # not capsys, which loses what another thread writes while it is read
    monkeypatch.setattr(sys, "stderr", printed)
    with ProgressBoard("evaluate", {run: {"evaluate": 1.0} for run in RUNS}) as board:
        ProgressWriter(board.folder, RUNS[0], "evaluate")(30, 60, 0, None, 0.0)
        for _ in range(600):
            if printed.getvalue():
                break
            time.sleep(0.1)
    line = printed.getvalue().splitlines()[0]
    assert line.startswith("  evaluate: 0 of 3 jobs")
    assert len(line) < 80


def test_a_board_that_is_gone_stops_no_run(board: ProgressBoard, tmp_path: Path) -> None:
    writer = ProgressWriter(str(tmp_path / "gone"), RUNS[0], "finetune")
    writer(1, 2, 0, None, 0.0)
    ProgressWriter(None, RUNS[0], "finetune")(1, 2, 0, None, 0.0)
    (Path(board.folder) / f"{RUNS[0]}.json").write_text(json.dumps({})[:1])
    assert board.states() == {}

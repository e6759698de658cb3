"""What the benchmark of the main job counts as training and as answers."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from regft_core.runs.finished_model import FinishedModel
from regft_core.training.loop import Loop
from regft_core.training.stack import Stack

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def job_share(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for owner, name in ((Loop, "train"), (Stack, "fit"), (FinishedModel, "answer")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end
    module = importlib.import_module("job_share")
    module.counter.cache_clear()
    return module


def test_answers_inside_training_are_training(job_share: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An epoch that is judged answers within the loop, and no second is in two counts."""
    clock = iter(range(100))
    monkeypatch.setattr(time, "process_time", lambda: float(next(clock)))
    monkeypatch.setattr(FinishedModel, "answer", lambda self: "answer")
    monkeypatch.setattr(Loop, "train", lambda self: FinishedModel.answer(None))
    counter = job_share.counter()
    assert Loop.train(None) == "answer"
    assert counter.seconds == {"training": 1.0}
    FinishedModel.answer(None)
    assert counter.seconds == {"training": 1.0, "answers": 1.0}
    monkeypatch.setenv(job_share.COUNTS, str(tmp_path))
    counter.write()
    (written,) = tmp_path.iterdir()
    assert json.loads(written.read_text()) == counter.seconds


def test_the_job_is_changed_by_dotted_keys(job_share: Any, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("grid: {seeds: [0, 1]}\nmethods: [vanilla]\n")
    job_share.set_param(path, "grid.seeds", "[3]")
    job_share.set_param(path, "training", "{max_steps: 2}")
    assert job_share.yaml.safe_load(path.read_text()) == {
        "grid": {"seeds": [3]}, "methods": ["vanilla"], "training": {"max_steps": 2},
    }  # fmt: skip

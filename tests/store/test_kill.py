"""A run is killed at every point of the store's writing and must end as if nothing had happened."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.disk.canonical import sha256_json
from regft_core.runs.store import RunStore
from tests.killed import FORK, in_child

IDENTITY: dict[str, Any] = {"kill": "test"}
KEY = sha256_json(IDENTITY)
STEPS = 6


def train(path: Path, pause: float = 0.0, count: Path | None = None) -> None:
    """Stand-in for training: the weights depend on every step and on the order of the steps."""
    with RunStore(path).open(KEY, IDENTITY) as run:
        if run.finished is not None and run.finished.has_weights:
            return
        found = run.load_checkpoint()
        weights, start = (found[0]["w"], found[1]["step"]) if found else (torch.zeros(5), 0)
        for step in range(start, STEPS):
            weights = weights * 0.5 + step
            if count is not None:
                with count.open("a") as file:
                    file.write(f"{step}\n")
            time.sleep(pause)
            run.save_checkpoint({"w": weights}, {"step": step + 1})
        run.commit({"steps": STEPS}, {"weights": {"w": weights}}, {"curves.csv": "step\n"})


def assert_as_if_uninterrupted(path: Path) -> None:
    expected = torch.zeros(5)
    for step in range(STEPS):
        expected = expected * 0.5 + step
    store = RunStore(path)
    stored = store.get(KEY)
    assert stored is not None
    assert stored.result == {"steps": STEPS}
    assert torch.equal(stored.load_tensors()["w"], expected)
    names = sorted(p.name for p in stored.path.parent.iterdir())
    assert names == [KEY, f"{KEY}.lock"]  # nothing unfinished is left
    assert sorted(p.name for p in stored.path.iterdir()) == [
        "curves.csv",
        "identity.json",
        "manifest.json",
        "result.json",
        "weights.safetensors",
    ]


@pytest.mark.parametrize(
    "point",
    [
        *(f"checkpoint.{place}:{n}" for place in ("written", "renamed") for n in (1, 3)),
        "commit.tensors",
        "commit.manifest",
        "commit.renamed",
    ],
)
def test_killed_at(tmp_path: Path, point: str) -> None:
    steps = tmp_path / "steps"
    assert in_child(train, tmp_path / "store", 0.0, steps, at=point) == -signal.SIGKILL
    # A commit is there as a whole or not at all.
    assert (RunStore(tmp_path / "store").get(KEY) is not None) == (point == "commit.renamed")
    done_before = len(steps.read_text().split())
    assert in_child(train, tmp_path / "store", 0.0, steps) == 0
    with RunStore(tmp_path / "store").open(KEY, IDENTITY) as run:
        assert run.finished is not None
    assert_as_if_uninterrupted(tmp_path / "store")
    # At most the step whose checkpoint was cut off is repeated.
    assert len(steps.read_text().split()) - STEPS == (1 if point.startswith("checkpoint.w") else 0)
    assert done_before >= 1


def test_the_lock_of_a_killed_process_goes_to_the_one_that_waits(tmp_path: Path) -> None:
    first = FORK.Process(target=train, args=(tmp_path, 0.2))
    first.start()
    while not list(tmp_path.rglob("checkpoint.safetensors")):
        time.sleep(0.01)
    second = FORK.Process(target=train, args=(tmp_path,))
    second.start()
    time.sleep(0.1)
    os.kill(first.pid or 0, signal.SIGKILL)
    second.join(60)
    first.join()
    assert second.exitcode == 0
    assert_as_if_uninterrupted(tmp_path)

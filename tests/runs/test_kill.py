"""SIGKILL anywhere, run again: the same bits as never having been killed."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from tests.killed import in_child
from tests.runs.conftest import job, runs, stored, train, write_method

METHODS = ("hype_n", "soup", "best", "watched")
SOUP = {
    "finetune": {
        "data": {"split": 0.7},
        "repeat": {"times": 2, "merge": "greedy", "vary": ["order", "head"]},
        "training": {"epochs": 1},
    }
}
#: The best of three epochs, on rows set aside.
BEST = {"epochs": 3, "checkpoint": "best_on_split", "checkpoint_share": 0.3}
#: All epochs are scored, and none is chosen.
WATCHED = {"epochs": 3, "epoch_scores": True}
#: ``tests/promises`` kills a search with two members at every kind of write, ``tests/store`` at each of a checkpoint.
PLACES = [
    ("hype_n", "step:2"),
    *(("soup", point) for point in ("step:4", "commit.manifest:3")),
    # Right after the first epoch was judged, in the middle of the next, before it is done.
    *(("best", point) for point in ("step:3", "step:5")),
    ("watched", "step:5"),
]


def everything(root: Path, method: str) -> dict[str, Any]:
    """All stages of one run of a method; its scores."""
    record = train(root, method)
    return evaluate(Context(job(root, method)), record)


def outcome(root: Path) -> dict[str, Any]:
    """Everything about all stored runs but how long they took."""
    found = {}
    for key in runs(root):
        run = stored(root, key)
        result = {k: v for k, v in run.result.items() if k not in ("seconds", "cost")}
        result["passes"] = {k: v for k, v in run.result.get("cost", {}).items() if "seconds" not in k}
        found[key] = (result, {name: run.tensors_sha256(name) for name in run.tensor_names})
    return found


def with_soup(root: Path) -> Path:
    write_method(root, "soup", phases=SOUP)
    write_method(root, "best", training=BEST)
    write_method(root, "watched", training=WATCHED)
    return root


@pytest.fixture(scope="module")
def uninterrupted(template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {}
    for method in METHODS:
        root = with_soup(Path(shutil.copytree(template, tmp_path_factory.mktemp("whole") / "project")))
        scores = everything(root, method)["sets"]
        found[method] = (scores, outcome(root))
    return found


@pytest.mark.parametrize(("method", "point"), PLACES)
def test_a_killed_run_continues_with_the_same_bits(
    project: Path, uninterrupted: dict[str, Any], method: str, point: str
) -> None:
    with_soup(project)
    assert in_child(everything, project, method, at=point) == -signal.SIGKILL
    assert everything(project, method)["sets"] == uninterrupted[method][0]
    assert outcome(project) == uninterrupted[method][1]


def test_a_member_that_was_finished_before_the_kill_is_not_trained_again(
    project: Path, trained: list[tuple[str, int]]
) -> None:
    assert in_child(everything, project, "weight_mixup", at="step:5") == -signal.SIGKILL
    everything(project, "weight_mixup")
    assert trained == [("search", 0), ("finetune", 0)]

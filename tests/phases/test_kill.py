"""SIGKILL anywhere, run again: the same bits as never having been killed."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from regft_core.phases.context import Context, Job
from regft_core.phases.evaluate import evaluate
from regft_core.phases.finetune import ensure_finetuned, finetune
from regft_core.phases.search import ensure_search, search
from regft_core.runs.stored import StoredRun

FORK = multiprocessing.get_context("fork")
#: During a checkpoint write, before the manifest, after the rename, in the middle of an epoch.
POINTS = ["checkpoint.tensors:2", "checkpoint.manifest:2", "checkpoint.renamed:2", "step:2"]
ENDS = ["commit.tensors", "commit.manifest", "commit.renamed"]


def job(root: Path, method: str) -> Job:
    return Job(str(root), method, "cue_sentence", "24", 0)


def in_child(function: Any, root: Path, method: str, kill_at: str | None) -> int:
    """Run ``function(job)`` in a child process; returns its exit code (negative: a signal)."""

    def body() -> None:
        if kill_at is not None:
            os.environ["REGFT_KILL_AT"] = kill_at
        function(job(root, method))

    process = FORK.Process(target=body)
    process.start()
    process.join(timeout=120)
    assert process.exitcode is not None
    return process.exitcode


def outcome(run: StoredRun) -> dict[str, Any]:
    """Everything about a run but how long it took."""
    result = {k: v for k, v in run.result.items() if k not in ("seconds", "cost", "search_cost")}
    return {"result": result, "weights": run.tensors_sha256("weights")}


@pytest.fixture(scope="module")
def uninterrupted(template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = Path(shutil.copytree(template, tmp_path_factory.mktemp("whole") / "project"))
    found = {}
    for method in ("hype_n", "weight_mixup"):
        found[f"finetune {method}"] = outcome(ensure_finetuned(Context(job(root, method))))
        found[f"scores {method}"] = evaluate(job(root, method))["sets"]
    found["search weight_mixup"] = outcome(ensure_search(Context(job(root, "weight_mixup"))))
    return found


@pytest.mark.parametrize("point", POINTS + ENDS)
def test_killed_search_continues_with_the_same_bits(project: Path, uninterrupted: Any, point: str) -> None:
    assert in_child(search, project, "weight_mixup", point) == -signal.SIGKILL
    assert in_child(search, project, "weight_mixup", None) == 0
    assert outcome(ensure_search(Context(job(project, "weight_mixup")))) == uninterrupted["search weight_mixup"]


@pytest.mark.parametrize("point", POINTS + ENDS)
@pytest.mark.parametrize("method", ["hype_n", "weight_mixup"])
def test_killed_finetuning_continues_with_the_same_bits(
    project: Path, uninterrupted: Any, method: str, point: str
) -> None:
    if method == "weight_mixup":
        assert in_child(search, project, method, None) == 0
    assert in_child(finetune, project, method, point) == -signal.SIGKILL
    assert in_child(finetune, project, method, None) == 0
    assert outcome(ensure_finetuned(Context(job(project, method)))) == uninterrupted[f"finetune {method}"]
    assert evaluate(job(project, method))["sets"] == uninterrupted[f"scores {method}"]


def test_killed_three_times_in_a_row(project: Path, uninterrupted: Any) -> None:
    for _ in range(3):
        assert in_child(finetune, project, "hype_n", "step:2") == -signal.SIGKILL
    assert outcome(ensure_finetuned(Context(job(project, "hype_n")))) == uninterrupted["finetune hype_n"]

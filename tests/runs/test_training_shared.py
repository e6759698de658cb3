"""What only reads finished weights names the training that it reads: methods that train alike train once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import RunFailed
from regft_core.grid.queue import torch_threads
from regft_core.runs import training_run
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import load_whole
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.phase import phase_inputs
from regft_core.runs.run import run
from tests.runs.conftest import change, job, stored, write_method

SOUP: dict[str, Any] = {"data": {"split": 0.6}, "training": {"epochs": 1}}


@pytest.fixture
def arms(project: Path) -> Path:
    write_method(project, "released", regularisers={"wise_ft": {"alpha": 0.5, "head": "trained"}})
    change(project, methods=["vanilla", "wise_ft", "released"])
    return project


def weights(root: Path, method: str) -> dict[str, torch.Tensor]:
    asked = job(root, method)
    record = run(asked)
    assert record["evaluate"]["status"] == "ok"
    context = Context(asked)
    return load_whole(context, context.phase("finetune"), stored(root, record["finetune"]["key"]), "weights")


@pytest.mark.parametrize("order", [("vanilla", "wise_ft", "released"), ("wise_ft", "released", "vanilla")])
def test_plain_training_and_its_interpolations_train_once(
    arms: Path, trained: list[tuple[str, int]], order: tuple[str, ...]
) -> None:
    found = {method: weights(arms, method) for method in order}
    assert trained == [("finetune", 0)]
    start = Context(job(arms, "vanilla"))
    begun = dict(training_run.build(phase_inputs(start, start.phase("finetune"), None))[0].named_raw())
    for name, tensor in found["wise_ft"].items():
        assert torch.equal(tensor, 0.5 * begun[name].detach() + 0.5 * found["vanilla"][name])
        same = found["vanilla"][name] if name.startswith("classifier.") else tensor
        assert torch.equal(found["released"][name], same)
    record = run(job(arms, "wise_ft"))["finetune"]
    plain = run(job(arms, "vanilla"))["finetune"]
    assert record["key"] != plain["key"]
    assert record["curve"] == plain["curve"]
    assert record["cost"]["train_seconds"] == plain["cost"]["train_seconds"]


def test_a_training_that_failed_fails_what_reads_it(arms: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def failing(inputs: training_run.PhaseInputs, **_: Any) -> Any:
        asked.append(inputs.phase.name)
        raise RunFailed("diverged", "the loss became NaN")

    monkeypatch.setattr(training_run, "train", failing)
    for method in ("wise_ft", "vanilla"):
        record = run(job(arms, method))["finetune"]
        assert (record["status"], record["error"]) == ("failed", "the loss became NaN [diverged]")
    assert asked == ["finetune"]


def test_a_pruned_training_is_made_again_with_its_bits(arms: Path, trained: list[tuple[str, int]]) -> None:
    with torch_threads(1):
        before = weights(arms, "wise_ft")
        key = Context(job(arms, "wise_ft")).keys.of("finetune")
        Context(job(arms, "wise_ft")).store.prune(0)
        after = FinishedModel(Context(job(arms, "wise_ft", finetune=key))).model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_other_options_are_other_results_of_one_training(arms: Path) -> None:
    first = Context(job(arms, "wise_ft"))
    other = Context(job(arms, "released"))
    assert (
        first.keys.training_keys("finetune")
        == other.keys.training_keys("finetune")
        == [Context(job(arms, "vanilla")).keys.of("finetune")]
    )
    assert first.keys.of("finetune") != other.keys.of("finetune")
    write_method(arms, "beside", regularisers={"wise_ft": {"alpha": 0.5}, "label_smoothing": {"smoothing": 0.1}})
    assert Context(job(arms, "beside")).keys.training_keys("finetune") == []  # it is trained as it always was

"""What only reads finished weights names the training that it reads: methods that train alike train once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import RunFailed
from regft_core.grid.failures import torch_threads
from regft_core.grid.jobs import Planner
from regft_core.runs import training_run
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import load_whole
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.phase import phase_inputs
from regft_core.runs.project import open_project
from regft_core.runs.run import run
from tests.recomputed import differences, expected
from tests.runs.conftest import change, job, runs, stored, write_method

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


def test_soups_of_the_same_members_train_them_once(project: Path, trained: list[tuple[str, int]]) -> None:
    repeat = {"times": 3, "vary": ["order", "noise"]}
    for merge, variant in (("mean", "paper"), ("greedy", "paper"), ("greedy", "released")):
        name = f"{merge}_{variant}"
        again = {**repeat, "merge": merge, **({"variant": variant} if merge == "greedy" else {})}
        write_method(
            project, name, phases={"members": {**SOUP, "repeat": again}, "finetune": {"training": {"epochs": 0}}}
        )
        assert run(job(project, name))["evaluate"]["status"] == "ok"
    assert [phase for phase, _ in trained].count("members") == 3


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


def test_a_pruned_training_is_made_again_and_all_of_it_can_be_verified(
    arms: Path, trained: list[tuple[str, int]]
) -> None:
    with torch_threads(1):
        before = weights(arms, "wise_ft")
        project, store = open_project(arms), Context(job(arms, "wise_ft")).store
        key = Context(job(arms, "wise_ft")).keys.of("finetune")
        store.prune(0)
        after = FinishedModel(Context(job(arms, "wise_ft", finetune=key))).model.state_dict()
        known = expected(project, [job(arms, "wise_ft")])
        assert set(known) == set(runs(arms))  # the training too, which no method of the grid names here
        assert sorted(one.name.split(" of ")[0] for one in known.values()) == ["evaluate", "finetune", "training"]
        for key, made in known.items():
            found = store.get(key)
            assert found is not None
            assert differences(project, made, found, "cpu") == []
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


def test_the_second_waits_for_the_first(arms: Path) -> None:
    planner = Planner(open_project(arms))
    first, second, third = (planner.add(job(arms, m), "finetune", None) for m in ("wise_ft", "vanilla", "released"))
    assert planner.jobs.after[max(first)] == set()
    assert planner.jobs.after[max(second)] == first
    assert planner.jobs.after[max(third)] == first


def test_an_interpolation_has_its_bits_whoever_trained_what_it_reads(arms: Path, tmp_path: Path) -> None:
    clean = Path(shutil.copytree(arms, tmp_path / "clean"))
    weights(arms, "vanilla")
    one, other = weights(arms, "wise_ft"), weights(clean, "wise_ft")
    assert all(torch.equal(one[name], other[name]) for name in one)

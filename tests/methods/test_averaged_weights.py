"""Averages of weights along training, between its ends and over models, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.schema.training import TrainingConfig
from regft_core.training.merges import mean
from tests.methods.chain import Runner, phase, run_phase
from tests.methods.harness import NO_STEPS, TRAINING, Bench, same, source_of

# ---------------------------------------------------------------------------------------------------- weight averaging


NAME = "bert.encoder.layer.0.output.dense.weight"
CONSTANT = TRAINING.model_copy(update={"schedule": "constant", "max_steps": 6})


def trail(training: TrainingConfig = CONSTANT) -> list[torch.Tensor]:
    """One tensor before training and after every step of plain fine-tuning."""
    bench = Bench(training=training)
    seen = [bench.model.get_parameter(NAME).detach().clone()]
    bench.loop(progress=lambda *_: seen.append(bench.model.get_parameter(NAME).detach().clone())).train()
    return seen


def averaged(options: dict[str, Any], training: TrainingConfig = CONSTANT) -> torch.Tensor:
    return Bench([("weight_averaging", options)], training=training).train()[NAME]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"begin": 0.5}, [4, 5, 6]),
        ({"begin": 0.0}, [1, 2, 3, 4, 5, 6]),
        ({"begin": 0.0, "every": 2}, [2, 4, 6]),
        ({"begin": 0.0, "every": 4}, [2, 6]),
        ({"begin": 0.99}, [6]),
    ],
)
def test_the_equal_average_is_the_mean_of_these_steps(options: dict[str, Any], steps: list[int]) -> None:
    seen = trail()
    expected = torch.stack([seen[step].double() for step in steps]).mean(0).float()
    assert torch.allclose(averaged(options), expected, atol=1e-7)


@pytest.mark.parametrize("most", [0.3, 0.999])
def test_the_exponential_average_by_hand(most: float) -> None:
    """Its decay grows with the steps, to ``most``."""
    seen = trail()
    mean = seen[0].double()
    for step in range(1, 7):
        decay = min(most, step / (step + 9))
        mean = decay * mean + (1 - decay) * seen[step].double()
    assert torch.allclose(averaged({"average": "exponential", "decay": most}), mean.float(), atol=1e-7)


def test_it_comes_before_an_interpolation_with_the_start() -> None:
    average = averaged({"begin": 0.0})
    both = Bench([("weight_averaging", {"begin": 0.0}), ("wise_ft", {"alpha": 0.5})], training=CONSTANT).train()
    assert torch.allclose(both[NAME], (average + trail()[0]) / 2, atol=1e-7)


# ------------------------------------------------------------------------------------------------------------- wise ft


def floats(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if value.is_floating_point()}


@pytest.mark.parametrize(("alpha", "moved"), [(0.25, 0.0), (0.9, 0.1)])
def test_every_tensor_lies_between_where_the_phase_began_and_its_end(alpha: float, moved: float) -> None:
    start = {name: value + moved for name, value in floats(Bench().trainee.plain_weights()).items()}
    end = floats(Bench(start=start).train())
    found = Bench([("wise_ft", {"alpha": alpha})], start=start).train()
    for name in end:
        assert torch.allclose(found[name], (1 - alpha) * start[name] + alpha * end[name], atol=1e-7), name


def test_the_head_may_stay_as_it_was_trained() -> None:
    end = Bench().train()
    found = Bench([("wise_ft", {"head": "trained"})]).train()
    assert torch.equal(found["classifier.weight"], end["classifier.weight"])
    assert not torch.equal(found["bert.pooler.dense.weight"], end["bert.pooler.dense.weight"])


def test_behind_a_view_the_trained_tensors_are_interpolated() -> None:
    mixed, alone = (Bench([*given, ("weight_mixup", {"attention": "random"})]) for given in ([("wise_ft", {})], []))
    for bench in (mixed, alone):
        bench.loop().train()
    middle = (alone.trainee.raw(NAME).detach() + mixed.trainee.anchor("start")[NAME]) / 2
    assert torch.allclose(mixed.trainee.raw(NAME).detach(), middle, atol=1e-7)


@pytest.mark.parametrize("alpha", [0.0, 0.25])
def test_values_are_mixed_in_their_unit(alpha: float) -> None:
    """Weights are stored in the unit of the targets and train on standardised ones; 0 is the start itself."""
    mix = ("wise_ft", {"alpha": alpha, "start": "head"})
    phases = phase([("linear_head", {})], name="head", epochs=0), phase(name="train", start="head")
    done = Runner(source_of("bert"), "regression").run([*phases, phase([mix], start="train", epochs=0)])
    start, end, found = (done[name].tensors["weights"] for name in ("head", "train", "finetune"))
    for name in floats(found):
        assert torch.allclose(found[name], (1 - alpha) * start[name] + alpha * end[name], atol=1e-5), name


# ---------------------------------------------------------------------------------------------------------------- soup


def soup(*members: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return mean([{"weights": one} for one in members], float)[0]["weights"]


def test_a_soup_is_the_mean_of_its_members_which_share_the_drawn_head() -> None:
    def member(index: int, head: str, training: TrainingConfig = TRAINING) -> dict[str, torch.Tensor]:
        streams = {"noise": f"members-{index}", "order": f"members-{index}", "head": head}
        return run_phase(name="members", streams=streams, training=training).weights

    heads = [member(i, head, NO_STEPS)["classifier.weight"] for i, head in ((0, "head"), (1, "head"), (1, "head/1"))]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    one, two = member(0, "head"), member(1, "head")
    assert not same(one, two)
    mean = soup(one, two)
    assert all(torch.allclose(mean[name], (one[name] + two[name]) / 2, atol=1e-7) for name in floats(one))

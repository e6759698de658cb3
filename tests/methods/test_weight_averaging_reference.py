"""Averages along training, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.schema.training import TrainingConfig
from tests.methods.harness import TRAINING, Bench

NAME = "bert.encoder.layer.0.output.dense.weight"
CONSTANT = TRAINING.model_copy(update={"schedule": "constant", "max_steps": 6})


def trail(training: TrainingConfig = CONSTANT) -> list[torch.Tensor]:
    """One tensor before training and after every step of plain fine-tuning."""
    bench = Bench(training=training)
    seen = [bench.model.get_parameter(NAME).detach().clone()]
    bench.loop(on_step=lambda _: seen.append(bench.model.get_parameter(NAME).detach().clone())).train()
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


def test_the_exponential_average_by_hand() -> None:
    seen = trail()
    mean = seen[0].double()
    for step in range(1, 7):
        decay = min(0.3, step / (step + 9))
        mean = decay * mean + (1 - decay) * seen[step].double()
    assert torch.allclose(averaged({"average": "exponential", "decay": 0.3}), mean.float(), atol=1e-7)


def test_a_large_decay_grows_with_the_steps() -> None:
    seen = trail()
    mean = seen[0].double()
    for step, decay in enumerate([1 / 10, 2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15], start=1):
        mean = decay * mean + (1 - decay) * seen[step].double()
    assert torch.allclose(averaged({"average": "exponential", "decay": 0.999}), mean.float(), atol=1e-7)


def test_equal_weights_are_their_own_average() -> None:
    frozen = CONSTANT.model_copy(update={"learning_rate": 1e-30, "weight_decay": 0.0})
    start = Bench().trainee.plain_weights()[NAME]
    assert torch.equal(averaged({"begin": 0.0}, frozen), start)
    assert torch.equal(averaged({"average": "exponential"}, frozen), start)


def test_training_itself_does_not_see_the_average() -> None:
    assert Bench([("weight_averaging", {})]).loop().train().curve == Bench().loop().train().curve


def test_it_comes_before_an_interpolation_with_the_start() -> None:
    average = averaged({"begin": 0.0})
    both = Bench([("weight_averaging", {"begin": 0.0}), ("wise_ft", {"alpha": 0.5})], training=CONSTANT).train()
    assert torch.allclose(both[NAME], (average + trail()[0]) / 2, atol=1e-7)

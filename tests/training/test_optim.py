"""Parameter groups, and optimisers as files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from regft_core.catalogue import OPTIMISERS
from regft_core.hooks.declare import ParameterGroup
from regft_core.schema.training import TrainingConfig
from regft_core.training.optim import build_optimizer, load_optimizer_tensors, optimizer_tensors, parameter_groups
from tests.methods.harness import TRAINING, Bench, same

PLAIN = """\
import torch


def build(groups, training):
    return torch.optim.SGD(groups, lr=training.learning_rate)
"""


def parameters(*names: str) -> dict[str, torch.nn.Parameter]:
    return {name: torch.nn.Parameter(torch.ones(2)) for name in names}


def test_an_optimiser_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "descent.py").write_text(PLAIN)
    with pytest.raises(ValidationError, match="unknown optimiser 'descent'"):
        TrainingConfig(optimizer="descent")
    with OPTIMISERS.also(tmp_path):
        training = TRAINING.model_copy(update={"optimizer": "descent"})
        assert TrainingConfig(optimizer="descent").optimizer == "descent"
        run = Bench(training=training)
        assert type(run.loop().optimizer) is torch.optim.SGD
        assert not same(run.train(), Bench().train())


@pytest.mark.parametrize("name", OPTIMISERS.names())
def test_every_optimiser_keeps_the_rate_and_decay_of_each_group(name: str) -> None:
    special = ParameterGroup(parameters("own"), learning_rate=0.5, weight_decay=0.25)
    training = TrainingConfig(optimizer=name, learning_rate=0.1, weight_decay=0.01, epsilon=1e-6)
    named = parameters("weight", "bias") | special.parameters
    groups = parameter_groups(named, training, lambda n: n == "bias", [special])
    optimizer = build_optimizer(groups, training)
    found = {tuple(g["names"]): (g["lr"], g["weight_decay"], g["eps"]) for g in optimizer.param_groups}
    assert found == {("weight",): (0.1, 0.01, 1e-6), ("bias",): (0.1, 0.0, 1e-6), ("own",): (0.5, 0.25, 1e-6)}


def test_factors_split_groups_by_rate_and_keep_their_decay() -> None:
    training = TrainingConfig(learning_rate=0.1, weight_decay=0.03)
    special = ParameterGroup(parameters("own"), learning_rate=0.5)
    named = parameters("low", "high", "low.bias") | special.parameters
    factors = {"low": 0.5, "low.bias": 0.5, "own": 0.5}
    groups = parameter_groups(named, training, lambda n: n.endswith("bias"), [special], factors)
    found = {name: (group["base_lr"], group["weight_decay"]) for group in groups for name in group["names"]}
    assert found == {"low": (0.05, 0.03), "high": (0.1, 0.03), "low.bias": (0.05, 0.0), "own": (0.25, 0.03)}


def test_two_regularisers_cannot_set_one_parameter() -> None:
    named = parameters("own")
    groups = [ParameterGroup(named, learning_rate=0.5), ParameterGroup(named, weight_decay=0.0)]
    with pytest.raises(ValueError, match="two regularisers give different settings of their own to own"):
        parameter_groups(named, TRAINING, lambda n: False, groups)


@pytest.mark.parametrize(("name", "counted_on"), [("adamax", "cpu"), ("adamw", "meta")])
def test_a_resumed_optimiser_counts_steps_where_a_fresh_one_does(name: str, counted_on: str) -> None:
    """An update that is not fused reads its count in every step, so on a GPU it has to stay on the host."""
    training = TrainingConfig(optimizer=name)
    trained = parameters("weight")
    first = build_optimizer(parameter_groups(trained, training, lambda _: False), training)
    trained["weight"].grad = torch.ones(2)
    first.step()
    stored = optimizer_tensors(first)
    # In the place of a GPU, for which there is no fused update here: only the flag tells the loader.
    elsewhere = {"weight": torch.nn.Parameter(torch.empty(2, device="meta"))}
    groups = parameter_groups(elsewhere, training, lambda _: False)
    resumed = torch.optim.Adamax([{**groups[0], "fused": name == "adamw"}])
    load_optimizer_tensors(resumed, stored)
    state = resumed.state[elsewhere["weight"]]
    assert {entry: str(value.device) for entry, value in state.items()} == {
        entry: counted_on if entry == "step" else "meta" for entry in first.state[trained["weight"]]
    }

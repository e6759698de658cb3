"""Parameter groups, optimisers as files of their own, and pieces of tensors that leave their bits alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from regft_core.catalogue import OPTIMISERS
from regft_core.hooks.declare import ParameterGroup
from regft_core.schema.training import TrainingConfig
from regft_core.training import chunks, two_level
from regft_core.training.chunks import groups_within, order_statistics, quantile_cut
from regft_core.training.optim import load_optimizer_tensors, optimizer_tensors, parameter_groups
from regft_core.training.optimisers.adamax import DecoupledAdamax, build
from tests.methods.harness import TRAINING, Bench, same
from tests.small_project import also

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
    with also(OPTIMISERS, tmp_path):
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
    optimizer = OPTIMISERS.load(name).build(groups, training)
    found = {tuple(g["names"]): (g["lr"], g["weight_decay"], g["eps"]) for g in optimizer.param_groups}
    assert found == {("weight",): (0.1, 0.01, 1e-6), ("bias",): (0.1, 0.0, 1e-6), ("own",): (0.5, 0.25, 1e-6)}


def test_factors_split_groups_by_rate_and_keep_their_decay() -> None:
    training = TrainingConfig(learning_rate=0.1, weight_decay=0.03)
    special = ParameterGroup(parameters("own", "own.bias"), learning_rate=0.5)
    named = parameters("low", "high", "low.bias") | special.parameters
    factors = {"low": 0.5, "low.bias": 0.5, "own": 0.5, "own.bias": 0.5}
    groups = parameter_groups(named, training, lambda n: n.endswith("bias"), [special], factors)
    found = {name: (group["base_lr"], group["weight_decay"]) for group in groups for name in group["names"]}
    expected = {"low": (0.05, 0.03), "high": (0.1, 0.03), "low.bias": (0.05, 0.0)}
    assert found == expected | dict.fromkeys(("own", "own.bias"), (0.25, 0.03))


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
    first = OPTIMISERS.load(name).build(parameter_groups(trained, training, lambda _: False), training)
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


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CPU_CHUNK", 64)


def test_groups_are_neighbours_within_the_limit() -> None:
    assert groups_within([3, 3, 3, 9, 1], 6) == [range(0, 2), range(2, 3), range(3, 4), range(4, 5)]
    assert groups_within([], 6) == []


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamax_in_pieces_has_the_bits_of_torch(decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(40, 33), (7,), (1,)]
    values = [torch.randn(shape, generator=generator) for shape in shapes]
    training = TrainingConfig(optimizer="adamax", learning_rate=1e-2, weight_decay=decay)
    ours, theirs = ([torch.nn.Parameter(value.clone()) for value in values] for _ in range(2))
    own = build([{"params": ours, "weight_decay": decay, "lr": 1e-2}], training)
    assert isinstance(own, DecoupledAdamax)
    reference = torch.optim.Adamax(theirs, lr=1e-2, betas=training.betas, eps=training.epsilon)
    for _ in range(5):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        own.step()
        with torch.no_grad():
            for other in theirs:
                if decay:
                    other.mul_(1 - 1e-2 * decay)
        reference.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    for one, other in zip(ours, theirs, strict=True):
        assert {*own.state[one]} == {*reference.state[other]}


@pytest.mark.parametrize("scale", [-0.3, torch.tensor(0.7)])
def test_a_shift_in_pieces_has_the_bits_of_a_shift_at_once(scale: float | torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    weights, direction = ([torch.randn(s, generator=generator) for s in ((40, 33), (7,))] for _ in range(2))
    expected = [weight + move * scale for weight, move in zip(weights, direction, strict=True)]
    two_level.shift(weights, direction, scale)
    assert all(torch.equal(weight, other) for weight, other in zip(weights, expected, strict=True))


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, 30_003])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 1.0])
def test_it_chooses_the_entries_that_numpys_quantile_does(count: int, zeros: float) -> None:
    """Of squared gradients over many orders of magnitude, with ties; one tensor is not contiguous, one empty."""
    values = (torch.randn(count, generator=torch.Generator().manual_seed(0)) * 4 - 12).exp()
    values[: int(zeros * count)] = 0.0
    third = count // 3
    parts = [values[:third], values[third : 3 * third].reshape(2, third).t(), torch.empty(0), values[3 * third :]]
    for q in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1.0):
        expected = np.quantile(values.double().numpy(), q)
        assert torch.equal(values >= quantile_cut(parts, q), values.double() >= expected)


def test_what_has_no_quantile_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        order_statistics([torch.tensor([1.0, float("nan")])], 0, 1)
    with pytest.raises(ValueError, match="no values"):
        quantile_cut([], 0.5)

"""FreeLB against numbers worked out by hand and the invariants of its algorithm."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.methods.freelb import PASS
from regft_core.training.perturbation import example_maxima, example_norms
from tests.methods.harness import MAKES, STILL, TRAINING, Bench, close, gradients, watched
from tests.tiny import EMBEDDERS


def trace(bench: Bench) -> list[list[Tensor]]:
    """The perturbations that each pass of one step saw."""
    step = bench.step()
    passes = watched(step, lambda _: [value.detach().clone() for value in bench.method.perturbation.tensors()])
    bench.method.backward(step)
    return [values for *_, values in passes]


@pytest.mark.parametrize("architecture", [*MAKES, *EMBEDDERS])
@pytest.mark.parametrize("direction", ["gradient", "random"])
def test_each_move_has_the_stated_length_per_example(architecture: str, direction: str) -> None:
    bench = Bench([("freelb", {"ascent_size": 0.3, "direction": direction})], architecture=architecture)
    passes = trace(bench)
    assert len(passes) == 3
    for before, after in itertools.pairwise(passes):
        moved = [b - a for a, b in zip(before, after, strict=True)]
        assert torch.allclose(example_norms(moved, 1), torch.tensor(0.3), atol=1e-5)
    mask = bench.step().batch.attention_mask.bool()
    for values in passes:
        assert not values[0][~mask].any()  # padding keeps 0


@pytest.mark.parametrize("form", [{}, {"architecture": "bart"}, {"pair": True, "pooling": "mean", "separately": True}])
def test_the_first_perturbation_of_an_example_is_within_its_bound(form: dict[str, Any]) -> None:
    """BART's encoder and decoder, or two texts that are encoded separately: one norm, not one for each."""
    wide = TRAINING.model_copy(update={"batch_size": 64})
    bench = Bench([("freelb", {"initial_size": 0.6, "steps": 1})], rows=64, training=wide, **form)
    norms = example_norms(trace(bench)[0], bench.step().batch.rows_per_example)
    assert norms.max() <= 0.6
    assert norms.mean().item() == pytest.approx(0.6 / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize("radius", [0.05, 0.25])
def test_the_radius_bounds_the_norm_after_a_move(radius: float) -> None:
    passes = trace(Bench([("freelb", {"ascent_size": 0.2, "initial_size": 0.2, "radius": radius})]))
    for values in passes[1:]:
        assert example_norms(values, 1).max() <= radius * (1 + 1e-5)
    assert example_norms(passes[-1], 1).max().item() == pytest.approx(radius, rel=1e-4)


def test_the_gradient_of_the_weights_is_the_mean_over_the_passes() -> None:
    options = {"ascent_size": 0.5, "initial_size": 0.5, "steps": 2}
    bench = Bench([("freelb", options)], dropout=STILL)
    passes = trace(bench)
    found = gradients(bench)
    total: dict[str, Tensor] = {}
    for values in passes:  # by hand: a plain backward at each perturbation
        plain = Bench(dropout=STILL)
        plain.trainee.hooks.on_word_embedding(lambda tensor, site, values=values: tensor + values[site.index])
        total = {name: total.get(name, 0) + value / 2 for name, value in plain.gradients().items()}
    assert close(found, total, rtol=1e-3)
    assert found["bert.embeddings.word_embeddings.weight"].any()


def test_norms_and_maxima_are_over_all_rows_and_inputs_of_an_example() -> None:
    one, two = torch.zeros(4, 1, 2), torch.zeros(4, 1, 2)
    one[0], one[1], two[1] = torch.tensor([3.0, 0.0]), torch.tensor([0.0, -4.0]), torch.tensor([12.0, 0.0])
    assert example_norms([one, two], 1).flatten().tolist() == pytest.approx([3.0, math.sqrt(160.0), 0.0, 0.0])
    assert example_norms([one, two], 2).flatten().tolist() == [13.0, 13.0, 0.0, 0.0]
    assert example_maxima([one, one], 1).flatten().tolist() == [3.0, 4.0, 0.0, 0.0]
    assert example_maxima([one, two], 2).flatten().tolist() == [12.0, 12.0, 0.0, 0.0]


def test_a_gradient_that_is_no_number_moves_nothing() -> None:
    bench = Bench([("freelb", {})])
    method, step = bench.method, bench.step()
    method.perturbation.begin(step)
    step.forward(PASS)
    (value,) = method.perturbation.tensors()
    value.grad = torch.full_like(value, math.inf)
    value.grad[1:] = 0.0
    method.ascend(step, 0)
    assert torch.equal(method.perturbation.tensors()[0], value)

"""HyPe against its card: where noise goes, its law, what it leaves alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.errors import ModelError
from regft_core.hooks import compose
from regft_core.models.sites import LayerSite
from tests.methods.harness import TRAINING, Bench, entries
from tests.tiny import ARCHITECTURES


def observed(
    options: dict[str, Any], architecture: str = "bert", **more: Any
) -> list[tuple[LayerSite, Tensor, Tensor]]:
    """(site, clean layer input, noisy layer input) of one training pass."""
    run = Bench([("hype", options)], architecture=architecture, rows=64, **more)
    hype = run.stack.regularisers[0]
    seen: list[tuple[LayerSite, Tensor, Tensor]] = []
    original = hype._perturb

    def spy(tensor: Tensor, site: LayerSite, position: int) -> Tensor:
        noisy = original(tensor, site, position)
        seen.append((site, tensor.detach().clone(), noisy.detach().clone()))
        return noisy

    hype._perturb = spy
    run.step().forward()
    return seen


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_one_addition_per_layer_and_none_after_the_last(architecture: str) -> None:
    seen = observed({"scale": 1e-3}, architecture)
    layers = Bench(architecture=architecture).trainee.sites.layers
    assert [site.index for site, _, _ in seen] == list(range(len(layers)))


def test_normal_noise_has_the_declared_law() -> None:
    sigma = 1e-3
    seen = observed({"scale": sigma}, training=TRAINING.model_copy(update={"batch_size": 64}))
    for _, clean, noisy in seen:
        noise = (noisy - clean).double().flatten()
        assert noise.std().item() == pytest.approx(sigma, rel=0.02)
        assert abs(noise.mean().item()) < 4 * sigma / math.sqrt(noise.numel())
        assert (noise != 0).double().mean() > 0.99  # padding gets noise too
        vectors = (noisy - clean).double()
        first, second = vectors[:, 0].flatten(), vectors[:, 1].flatten()
        assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.1
    first, second = (noisy - clean for _, clean, noisy in seen[:2])
    assert abs(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]) < 0.05


def test_uniform_laws_symmetric_and_one_sided() -> None:
    epsilon = 1e-2
    wide = TRAINING.model_copy(update={"batch_size": 64})
    _, clean, noisy = observed({"scale": epsilon, "distribution": "uniform_one_sided"}, training=wide)[0]
    noise = (noisy - clean).double()
    assert noise.min() >= -1e-6
    assert noise.mean().item() == pytest.approx(epsilon / 2, rel=0.02)
    assert noise.std().item() == pytest.approx(epsilon / math.sqrt(12), rel=0.02)
    _, clean, noisy = observed({"scale": epsilon, "distribution": "uniform"}, training=wide)[0]
    noise = (noisy - clean).double()
    assert abs(noise.mean().item()) < 0.02 * epsilon
    assert noise.abs().max() <= epsilon * (1 + 1e-3)
    assert noise.std().item() == pytest.approx(epsilon / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize(
    ("distribution", "mean", "variance"),
    [("normal", 0.0, 1.0), ("uniform", 0.0, 1 / 3), ("uniform_one_sided", 0.5, 1 / 12)],
)
def test_noise_adds_up_over_identity_layers(distribution: str, mean: float, variance: float) -> None:
    """Card, oracle 4: L identity layers add L means and L variances of one layer's noise."""
    scale, layers = 1e-2, 4
    wide = TRAINING.model_copy(update={"batch_size": 64})
    run = Bench([("hype", {"scale": scale, "distribution": distribution})], rows=64, training=wide)
    hype = run.stack.regularisers[0]
    step = run.step()
    total = torch.zeros(64, 12, 256)

    class Anywhere:
        batch_dim = 0

        def __init__(self, index: int) -> None:
            self.index = index

    from regft_core.training.trainee import Pass

    run.trainee.current = Pass("main", (("main", 0, 64),), (0, 0, 0), step.batch.attention_mask)
    state = total
    for index in range(layers):
        state = hype._perturb(state, Anywhere(index), 0)
    added = (state - total).double()
    assert added.std().item() == pytest.approx(scale * math.sqrt(layers * variance), rel=0.02)
    standard_error = scale * math.sqrt(layers * variance / added.numel())
    assert added.mean().item() == pytest.approx(layers * mean * scale, abs=5 * standard_error)


def test_only_hidden_dropout_is_switched_off() -> None:
    probabilities = {
        name: module.p
        for name, module in Bench([("hype", {})]).model.named_modules()
        if isinstance(module, torch.nn.Dropout)
    }
    attention = {name: p for name, p in probabilities.items() if "attention.self" in name}
    assert set(attention.values()) == {0.1}
    assert {p for name, p in probabilities.items() if name not in attention} == {0.0}


def test_layer_subsets_and_positions() -> None:
    assert [site.index for site, _, _ in observed({"layers": [-1]})] == [1]
    assert len(observed({"position": "both"})) == 4
    within = observed({"position": "within_layers", "scale": 1e-2})
    assert [site.index for site, _, _ in within] == [0, 1]
    with pytest.raises(ModelError, match="layers 0 to 1"):
        observed({"layers": [7]})


def test_a_precision_that_erases_the_noise_is_refused_or_marked() -> None:
    stack = entries([("hype", {"scale": 1e-5})])
    refused, degraded = compose.precision_problems(stack, TRAINING.model_copy(update={"precision": "bf16"}))
    assert "rounds away" in refused[0]
    assert not degraded
    allowed = TRAINING.model_copy(update={"precision": "bf16", "allow_precision_loss": True})
    refused, degraded = compose.precision_problems(stack, allowed)
    assert not refused
    assert "bf16 rounds away" in degraded[0]
    assert compose.precision_problems(entries([("hype", {"scale": 0.1})]), allowed) == ([], [])


def test_noise_changes_nearly_all_entries_in_the_training_precision() -> None:
    """Card, oracle 6: the no-op detector, in fp32 at the default scale."""
    for _, clean, noisy in observed({}):
        assert (clean != noisy).float().mean() > 0.9


def test_both_texts_of_a_pair_get_noise_of_their_own_when_they_are_rows() -> None:
    seen = observed({"scale": 1e-2}, pooling="mean", separately=True)
    _, clean, noisy = seen[0]
    noise = noisy - clean
    assert noise.shape[0] == 8  # two rows for each of four examples
    assert not torch.equal(noise[0], noise[1])
    assert (noise != 0).double().mean() > 0.99

"""Noise in the passes: HyPe, LNSR, R3F and R4F against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.contract import laws
from regft_core.hooks.declare import MainPass
from regft_core.methods.lnsr import movement
from regft_core.methods.r3f import NOISED
from regft_core.models.sites import LayerSite
from regft_core.training.perturbation import token_draws
from tests.methods.harness import MAKES, STILL, TRAINING, Bench, close, gradients

WIDE: dict[str, Any] = {"rows": 64, "training": TRAINING.model_copy(update={"batch_size": 64})}


def observed(options: dict[str, Any], architecture: str = "bert", **more: Any) -> list[tuple[LayerSite, Tensor]]:
    """(site, what is added to its input) of one training pass."""
    run = Bench([("hype", options)], architecture=architecture, **more)
    seen: list[tuple[LayerSite, Tensor]] = []
    original = run.method._perturb

    def spy(tensor: Tensor, site: LayerSite, position: int) -> Tensor:
        noisy = original(tensor, site, position)
        seen.append((site, (noisy - tensor).detach()))
        return noisy

    run.method._perturb = spy
    run.step().forward()
    return seen


@pytest.mark.parametrize("architecture", MAKES)
def test_one_addition_per_layer_and_none_after_the_last(architecture: str) -> None:
    layers = Bench(architecture=architecture).trainee.sites.layers
    assert [site.index for site, _ in observed({"scale": 1e-3}, architecture)] == list(range(len(layers)))


def test_normal_noise_has_the_declared_law() -> None:
    seen = [noise.double() for _, noise in observed({"scale": 1e-3}, **WIDE)]
    for noise in seen:
        assert noise.std().item() == pytest.approx(1e-3, rel=0.02)
        assert abs(noise.mean().item()) < 4e-3 / math.sqrt(noise.numel())
        assert (noise != 0).double().mean() > 0.99  # padding gets noise too
        neighbours = torch.stack([noise[:, 0].flatten(), noise[:, 1].flatten()])
        assert abs(torch.corrcoef(neighbours)[0, 1]) < 0.1
    assert abs(torch.corrcoef(torch.stack([noise.flatten() for noise in seen[:2]]))[0, 1]) < 0.05


@pytest.mark.parametrize(
    ("law", "low", "mean", "sd"),
    [("uniform_one_sided", 0.0, 0.5, 1 / math.sqrt(12)), ("uniform", -1.0, 0.0, 1 / math.sqrt(3))],
)
def test_uniform_laws_symmetric_and_one_sided(law: str, low: float, mean: float, sd: float) -> None:
    noise = observed({"scale": 1e-2, "distribution": law}, **WIDE)[0][1].double() / 1e-2
    assert noise.mean().item() == pytest.approx(mean, abs=0.02)
    assert noise.std().item() == pytest.approx(sd, rel=0.02)
    assert noise.min() == pytest.approx(low, abs=1e-3)
    assert noise.max() == pytest.approx(1.0, abs=1e-3)


def test_layer_subsets_and_positions() -> None:
    assert [site.index for site, _ in observed({"layers": [-1]})] == [1]
    assert len(observed({"position": "both"})) == 4
    assert [site.index for site, _ in observed({"position": "within_layers"})] == [0, 1]


def term(bench: Bench) -> tuple[Tensor, Any]:
    """R of the first batch, and its step."""
    step = bench.step()
    logits, hidden = step.forward(hidden=True)
    return bench.stack.regularisers[-1].terms(step, MainPass(logits, hidden, logits.sum())), step


def test_movement_is_the_mean_squared_distance_of_real_tokens() -> None:
    clean = torch.tensor([[[1.0, 2.0], [0.0, 0.0]], [[1.0, 1.0], [5.0, 5.0]]])
    noised = torch.tensor([[[4.0, 6.0], [1.0, 0.0]], [[1.0, 2.0], [9.0, 9.0]]])
    # Distances 25, 1 and 1; the last token is padding.
    assert float(movement(clean, noised, torch.tensor([[1, 1], [1, 0]]))) == pytest.approx(9.0)


@pytest.mark.parametrize("architecture", MAKES)
def test_the_term_is_quadratic_in_the_noise_and_linear_in_its_weight(architecture: str) -> None:
    def value(**options: float) -> float:
        return float(term(Bench([("lnsr", options)], architecture=architecture))[0].detach())

    assert value(scale=0.0) == 0.0  # although dropout is on
    assert value(scale=2e-3) / value(scale=1e-3) == pytest.approx(4.0, rel=0.02)
    assert value(scale=1e-3, weight=3.0) / value(scale=1e-3) == pytest.approx(3.0, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "options"), [("lnsr", {"scale": 1.0, "layer": -1}), ("freelb", {"initial_size": 9.0})]
)
def test_a_decoder_has_no_place_for_its_last_token_however_far_it_is_padded(name: str, options: dict[str, Any]) -> None:
    assert laws.padding(lambda **more: Bench([(name, options)], architecture="bart", dropout=STILL).loop(**more)) == ""


@pytest.mark.parametrize("layer", [0, 1])
def test_value_and_gradient_are_those_of_the_layers_above_alone(layer: int) -> None:
    """The branches share everything below the noise: computed by hand from there on."""
    bench = Bench([("lnsr", {"layer": layer, "scale": 0.05})], dropout=STILL)
    found, step = term(bench)
    found.backward()
    slopes = gradients(bench)
    bench.model.zero_grad(set_to_none=True)
    mask, bert = step.batch.attention_mask, bench.model.bert
    noise = 0.05 * token_draws(mask.bool(), 32, step.batch.real_tokens, "normal", step.generator("lnsr.noise"))
    states: list[Tensor] = []
    handle = bert.encoder.layer[layer].register_forward_pre_hook(lambda _module, args: states.append(args[0]))
    bench.model(**step.batch.model_inputs())
    handle.remove()
    blocked = torch.zeros(mask.shape[0], 1, 1, mask.shape[1]).masked_fill(mask[:, None, None] == 0, -1e9)
    clean, noised, outputs = states[0], states[0] + noise, []
    for module in bert.encoder.layer[layer:]:
        clean, noised = (module(state, blocked) for state in (clean, noised))
        outputs.append(((noised - clean).square().sum(-1) * mask).sum() / mask.sum())
    by_hand = torch.stack(outputs).mean()
    assert float(found.detach()) == pytest.approx(float(by_hand.detach()), rel=1e-4)
    by_hand.backward()
    assert close(slopes, gradients(bench), atol=1e-5, rtol=1e-3)


# ----------------------------------------------------------------------------------------------------------------- r3f


@pytest.mark.parametrize(("law", "sd"), [("uniform", 1 / math.sqrt(3)), ("normal", 1.0)])
def test_noise_on_word_embeddings_has_the_declared_law_and_reaches_padding(law: str, sd: float) -> None:
    bench, seen = Bench([("r3f", {"scale": 1e-2, "distribution": law})], **WIDE), []
    bench.trainee.hooks.on_word_embedding(lambda tensor, site: seen.append(tensor.detach().double()) or tensor)
    step = bench.step()
    for name in ("main", NOISED):
        step.forward(name, draw=name)
    noise = (seen[1] - seen[0]) / 1e-2
    assert noise.std().item() == pytest.approx(sd, rel=0.02)
    assert abs(noise.mean().item()) < 5 / math.sqrt(noise.numel())
    assert (noise != 0).double().mean() > 0.99
    assert law == "normal" or noise.abs().max() <= 1.001


@pytest.mark.parametrize("architecture", MAKES)
def test_the_noised_pass_sends_no_gradient_to_the_embedding_table(architecture: str) -> None:
    bench = Bench([("r3f", {"scale": 1e-2})], architecture=architecture)
    step, table = bench.step(), bench.trainee.sites.word_embedding.weight
    step.forward(NOISED, draw=NOISED).square().sum().backward()
    assert table.grad is None or not table.grad.any()
    slopes = gradients(bench)
    assert any(slopes[name].any() for name in bench.trainee.sites.mixable if name in slopes)
    step.forward().square().sum().backward()
    assert table.grad.any()


# ----------------------------------------------------------------------------------------------------------------- r4f


@pytest.mark.parametrize("architecture", ["bert", "bart", "deberta-v2"])
def test_the_largest_singular_value_is_one_also_after_training_and_export(architecture: str) -> None:
    bench = Bench([("r4f", {}), ("r3f", {})], architecture=architecture, labels=5)
    name, weights = bench.stack.in_edit_order[-1].weight, bench.train()
    assert torch.linalg.svdvals(weights[name])[0].item() == pytest.approx(1.0, abs=1e-5)
    plain = Bench(architecture=architecture, labels=5).trainee
    assert set(weights) == set(plain.plain_weights())
    assert plain.sites.head[-1].rpartition(".")[0] == name.rpartition(".")[0]


def test_the_gradient_is_that_of_the_normalised_weight() -> None:
    """Of one output, which is divided by its norm: d(w / |w|) has no component along w."""
    bench = Bench([("r4f", {})], kind="regression", dropout=STILL)
    slope, raw = bench.gradients()["classifier.weight"], bench.trainee.raw("classifier.weight").detach()
    assert torch.allclose(bench.model.classifier.weight, raw / raw.norm())
    assert slope.any()
    assert abs(float((slope * raw).sum())) < 1e-5 * float(slope.norm() * raw.norm())

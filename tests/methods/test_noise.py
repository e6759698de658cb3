"""Noise in the passes: HyPe, LNSR, R3F and R4F against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.errors import ModelError
from regft_core.hooks import compose, ownership
from regft_core.hooks.declare import MainPass
from regft_core.methods.lnsr import Lnsr, movement
from regft_core.methods.r3f import NOISED, R3f
from regft_core.methods.r4f import last_projection
from regft_core.models.sites import LayerSite
from regft_core.training.perturbation import token_draws
from tests.errors import raises_code
from tests.methods.harness import MAKES, STILL, TRAINING, Bench, entries, same

# ---------------------------------------------------------------------------------------------------------------- hype


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


@pytest.mark.parametrize("architecture", MAKES)
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


# ---------------------------------------------------------------------------------------------------------------- lnsr


def term(bench: Bench) -> tuple[Tensor, Any]:
    """R of the first batch, and its step."""
    step = bench.step()
    logits, hidden = step.forward(hidden=True)
    return bench.regulariser(Lnsr).terms(step, MainPass(logits, hidden, logits.sum())), step


def value(**options: Any) -> float:
    more = {name: options.pop(name) for name in ("architecture", "dropout", "pair") if name in options}
    return float(term(Bench([("lnsr", options)], **more))[0].detach())


def test_movement_is_the_mean_squared_distance_of_real_tokens() -> None:
    clean = torch.tensor([[[1.0, 2.0], [0.0, 0.0]], [[1.0, 1.0], [5.0, 5.0]]])
    noised = torch.tensor([[[4.0, 6.0], [1.0, 0.0]], [[1.0, 2.0], [9.0, 9.0]]])
    # Distances 25, 1 and 1; the last token is padding.
    assert float(movement(clean, noised, torch.tensor([[1, 1], [1, 0]]))) == pytest.approx(9.0)


@pytest.mark.parametrize("architecture", MAKES)
def test_without_noise_nothing_moves_although_dropout_is_on(architecture: str) -> None:
    assert value(scale=0.0, architecture=architecture) == 0.0
    assert value(scale=0.01, architecture=architecture) > 0.0


def test_the_term_is_quadratic_in_the_noise_and_linear_in_its_weight() -> None:
    once = value(scale=1e-3)
    assert value(scale=2e-3) / once == pytest.approx(4.0, rel=0.02)
    assert value(scale=1e-3, weight=3.0) / once == pytest.approx(3.0, rel=1e-4)


@pytest.mark.parametrize("layer", [0, 1])
def test_value_and_gradient_are_those_of_the_layers_above_alone(layer: int) -> None:
    """The branches share everything below the noise: computed by hand from there on."""
    bench = Bench([("lnsr", {"layer": layer, "scale": 0.05})], dropout=STILL)
    found, step = term(bench)
    found.backward()
    gradients = {name: p.grad.clone() for name, p in bench.trainee.named_raw() if p.grad is not None}
    bench.model.zero_grad(set_to_none=True)

    mask = step.batch.attention_mask
    noise = 0.05 * token_draws(mask.bool(), 32, step.batch.real_tokens, "normal", step.generator("lnsr.noise"))
    bert = bench.model.bert
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
    for name, gradient in gradients.items():
        other = bench.trainee.raw(name).grad
        expected = torch.zeros_like(gradient) if other is None else other
        assert torch.allclose(gradient, expected, atol=1e-5, rtol=1e-3), name


def test_noise_of_hype_is_shared_by_both_passes() -> None:
    hype = ("hype", {"scale": 0.1})
    assert float(term(Bench([("lnsr", {"scale": 0.0}), hype]))[0].detach()) == 0.0


# ----------------------------------------------------------------------------------------------------------------- r3f


def noise_of(bench: Bench) -> Tensor:
    """What was added to the word embeddings of the noised pass, ``[rows, n, E]``."""
    seen: list[Tensor] = []
    bench.trainee.hooks.on_word_embedding(lambda tensor, site: seen.append(tensor.detach().clone()) or tensor)
    step = bench.step()
    step.forward()
    step.forward(NOISED, draw=NOISED)
    clean, noised = seen
    return noised.double() - clean.double()


def test_without_dropout_and_noise_the_term_is_zero() -> None:
    bench = Bench([("r3f", {"scale": 0.0})], dropout=STILL)
    step = bench.step()
    logits = step.forward().detach()
    assert float(bench.regulariser(R3f).terms(step, MainPass(logits, None, logits.sum())).detach()) == pytest.approx(
        0.0, abs=1e-7
    )


@pytest.mark.parametrize(("law", "sd"), [("uniform", 1 / math.sqrt(3)), ("normal", 1.0)])
def test_noise_has_the_declared_law_and_reaches_padding(law: str, sd: float) -> None:
    scale = 1e-2
    wide = TRAINING.model_copy(update={"batch_size": 64})
    noise = noise_of(Bench([("r3f", {"scale": scale, "distribution": law})], rows=64, training=wide))
    assert noise.std().item() == pytest.approx(scale * sd, rel=0.02)
    assert abs(noise.mean().item()) < 5 * scale / math.sqrt(noise.numel())
    assert (noise != 0).double().mean() > 0.99
    if law == "uniform":
        assert noise.abs().max() <= scale * 1.001


@pytest.mark.parametrize("architecture", MAKES)
def test_the_noised_pass_sends_no_gradient_to_the_embedding_table(architecture: str) -> None:
    bench = Bench([("r3f", {"scale": 1e-2})], architecture=architecture)
    step = bench.step()
    step.forward(NOISED, draw=NOISED).square().sum().backward()
    table = bench.trainee.sites.word_embedding.weight
    assert table.grad is None or not table.grad.any()
    layers = bench.trainee.sites.mixable
    assert any((grad := bench.trainee.raw(name).grad) is not None and grad.any() for name in layers)
    bench.model.zero_grad(set_to_none=True)
    step.forward().square().sum().backward()
    assert table.grad is not None
    assert table.grad.any()


def test_noise_reaches_the_predictions_and_only_in_its_pass() -> None:
    bench = Bench([("r3f", {"scale": 1e-1})], dropout=STILL)
    step = bench.step()
    plain = Bench(dropout=STILL).step().forward()
    assert torch.equal(step.forward(), plain)
    noised = step.forward(NOISED, draw=NOISED)
    assert not torch.allclose(noised, plain, atol=1e-4)
    assert torch.equal(noised, step.forward(NOISED, draw=NOISED))


# ------------------------------------------------------------------------------------------ R4F


def test_the_effective_head_is_the_weight_over_its_largest_singular_value() -> None:
    bench = Bench([("r4f", {})], labels=2)
    with torch.no_grad():
        raw = bench.trainee.raw("classifier.weight")
        raw.zero_()
        raw[0, 0], raw[1, 1] = 4.0, 2.0
    expected = torch.zeros(2, 32)
    expected[0, 0], expected[1, 1] = 1.0, 0.5
    assert torch.allclose(bench.model.classifier.weight, expected)


@pytest.mark.parametrize("architecture", MAKES)
@pytest.mark.parametrize("labels", [2, 5])
def test_the_largest_singular_value_is_one_also_after_training_and_export(architecture: str, labels: int) -> None:
    bench = Bench([("r4f", {}), ("r3f", {})], architecture=architecture, labels=labels)
    name = last_projection(bench.trainee, labels)
    weights = bench.train()
    assert torch.linalg.svdvals(weights[name])[0].item() == pytest.approx(1.0, abs=1e-5)
    plain = Bench(architecture=architecture, labels=labels)
    assert set(weights) == set(plain.trainee.plain_weights())
    assert plain.trainee.sites.head[-1].rpartition(".")[0] == name.rpartition(".")[0]


def test_one_output_is_divided_by_its_norm_and_a_zero_weight_stays_finite() -> None:
    bench = Bench([("r4f", {})], kind="regression")
    raw = bench.trainee.raw("classifier.weight")
    assert torch.allclose(bench.model.classifier.weight, raw / raw.norm())
    with torch.no_grad():
        raw.zero_()
    assert not bench.model.classifier.weight.any()


def test_the_gradient_is_that_of_the_normalised_weight() -> None:
    """d(w / |w|) has no component along w."""
    bench = Bench([("r4f", {})], kind="regression", dropout=STILL)
    bench.stack.backward(bench.step())
    raw = bench.trainee.raw("classifier.weight")
    assert raw.grad is not None
    assert raw.grad.any()
    assert abs(float((raw.grad * raw.detach()).sum())) < 1e-5 * float(raw.grad.norm() * raw.detach().norm())


def test_a_head_of_another_shape_is_an_error() -> None:
    with raises_code(ModelError, "head-outputs", "in 7", "classifier.weight", "has 2"):
        last_projection(Bench().trainee, 7)


ADAPTERS: list[tuple[str, dict[str, Any]]] = [
    ("lora", {}),
    ("lora", {"rank": 0}),
    ("prefix_tuning", {}),
    ("prompt_tuning", {}),
    ("prompt_tuning", {"reads": "text"}),
    ("top_k_layers", {"layers": 0, "pooler": False}),
]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
def test_the_head_over_a_frozen_encoder_is_normalised(adapter: tuple[str, dict[str, Any]]) -> None:
    """It was refused as a view of weights that stay frozen; the head is trained, and is all that it views."""
    assert ownership.ownership_problems(entries([adapter, ("r4f", {})])) == []
    bench = Bench([adapter, ("r4f", {})])
    raw = bench.trainee.raw("classifier.weight").detach().clone()
    before = bench.trainee.plain_weights()
    weights = bench.train()
    assert torch.linalg.svdvals(weights["classifier.weight"])[0].item() == pytest.approx(1.0, abs=1e-5)
    assert not torch.allclose(weights["classifier.weight"], raw / torch.linalg.matrix_norm(raw, 2), atol=1e-4)
    # The rest is frozen still: what LoRA folds in at the end stands in query and value.
    frozen = [name for name in before if not name.startswith("classifier") and ".self." not in name]
    assert all(torch.equal(weights[name], before[name]) for name in frozen)
    assert not same(weights, Bench([adapter]).train())

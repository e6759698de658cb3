"""Noise in the passes (HyPe, LNSR, R3F, R4F) and after the step (PATS) against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.contract import laws
from regft_core.hooks.declare import MainPass
from regft_core.methods import pats
from regft_core.methods.lnsr import movement
from regft_core.methods.r3f import NOISED
from regft_core.models.sites import LayerSite
from regft_core.schema.training import TrainingConfig
from regft_core.training.perturbation import token_draws
from tests.methods.harness import MAKES, STILL, TRAINING, Bench, changed, close, gradients

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
    for architecture, layers in (("bert", 2), ("bart", 4), ("xlnet", 2)):  # none after the last
        assert [site.index for site, _ in observed({"scale": 1e-3}, architecture)] == list(range(layers))
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


BARE = pats.PatsConfig().model_copy(update={"epsilon": 0.0})  # the formulas without their guard
ADAMAX = TrainingConfig(epochs=2, batch_size=4, learning_rate=1e-3, optimizer="adamax")


def test_worked_numbers_of_one_tensor() -> None:
    std = pats.noise_std(torch.tensor([1e-6, 2e-6, 3e-6, 6e-6]), BARE)
    assert std.square() * 1e6 == pytest.approx([5.996, 2.996, 1.996, 0.996], rel=1e-4)
    assert std * 1e3 == pytest.approx([2.4487, 1.7309, 1.4128, 0.9980], rel=1e-4)


def test_equal_sensitivities_give_noise_of_the_stated_variance() -> None:
    bench = Bench([("pats", {})], training=ADAMAX)
    dense = bench.model.bert.encoder.layer[0].intermediate.dense
    dense.weight = torch.nn.Parameter(torch.full((1000, 1000), 0.5))
    dense.weight.grad = torch.full((1000, 1000), 0.1)
    step, before = bench.step(), dense.weight.detach().clone()
    bench.method.observe_gradients(step)
    bench.method.perturb_weights(step)
    noise = (dense.weight.detach() - before).double()
    assert float(noise.var()) == pytest.approx(0.2 * 2e-6 * (1 - 0.002), rel=0.01)
    assert float((noise == 0).double().mean()) == pytest.approx(0.8, abs=0.002)


def add_everywhere(weight: Any, std: Any, probability: float, generator: torch.Generator) -> torch.Tensor:
    noise = pats.draw_noise(std, probability, generator)
    weight.add_(noise)
    return noise


def add_where_chosen(weight: Any, std: Any, probability: float, generator: torch.Generator) -> torch.Tensor:
    buffer = torch.empty_like(weight)
    chosen = pats.choose(weight.numel(), probability, generator, buffer)
    return pats.add_sparse_noise(weight, std.view(-1)[chosen], chosen, generator, buffer)


@pytest.mark.parametrize("add", [add_everywhere, add_where_chosen])
@pytest.mark.parametrize("probability", [1.0, 0.2, 0.001])
def test_both_ways_of_drawing_follow_the_same_law(add: Any, probability: float) -> None:
    weight, std = torch.zeros(1000, 1000), torch.full((1000, 1000), 0.5)
    std[:, 0] = 0.0
    returned = add(weight, std, probability, torch.Generator().manual_seed(1))
    assert float(returned.square().sum()) == pytest.approx(float(weight.square().sum()), rel=1e-4)
    assert not weight[:, 0].any()
    inside = weight[:, 1:].double()
    hit = inside != 0
    tolerance = 5 * (probability * (1 - probability) / inside.numel()) ** 0.5
    assert float(hit.double().mean()) == pytest.approx(probability, abs=max(tolerance, 1e-5))
    assert float(inside[hit].std()) == pytest.approx(0.5, rel=0.01 if probability > 0.1 else 0.1)
    # Neighbours are chosen independently, and no place more often than another.
    both = (hit[:, 1:] & hit[:, :-1]).double().mean()
    assert float(both) == pytest.approx(probability**2, abs=0.002)
    by_row = hit.double().mean(1)
    assert float(by_row.max() - by_row.min()) < 12 * (probability * (1 - probability) / 999) ** 0.5 + 1e-9
    small = torch.zeros(3)
    for seed in range(50):
        add(small, torch.ones(3), probability, torch.Generator().manual_seed(seed))
    assert small.isfinite().all()
    assert probability < 0.1 or (small != 0).all()


def test_an_entry_far_above_its_mean_gets_no_noise() -> None:
    options = BARE.model_copy(update={"threshold": 0.5})
    std = pats.noise_std(torch.tensor([1.0, 1.0, 1.0, 3.0]), options)  # mean 1.5, so 3 = mean / threshold
    assert std[3] == 0
    assert (std[:3] > 0).all()


def test_average_of_a_constant_sensitivity_has_no_bias_correction() -> None:
    weight, gradient = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([-1.0, 1.0, 4.0])
    average, buffer = torch.zeros(3), torch.empty(3)
    first: torch.Tensor | None = None
    for t in range(1, 9):
        pats.update_sensitivity(average, weight, gradient, BARE, buffer)
        assert torch.allclose(average, (1 - 0.75**t) * torch.tensor([2.0, 1.0, 2.0]), rtol=1e-5)
        std = pats.noise_std(average, BARE)
        first = std.clone() if first is None else first
        assert torch.allclose(std, first, rtol=1e-5)


def test_signed_sensitivity_gives_noise_only_where_the_sign_is_that_of_the_mean() -> None:
    options = BARE.model_copy(update={"sensitivity": "signed"})
    average, buffer = torch.zeros(4), torch.empty(4)
    pats.update_sensitivity(average, torch.ones(4), torch.tensor([3.0, -1.0, 1.0, -0.5]), options, buffer)
    assert (average * 4).tolist() == [3.0, -1.0, 1.0, -0.5]
    assert (pats.noise_std(average, options) > 0).tolist() == [True, False, True, False]
    assert (pats.noise_std(-average, options) > 0).tolist() == [True, False, True, False]


def test_linear_uniform_and_limited_intensities() -> None:
    average = torch.tensor([1e-6, 2e-6, 3e-6, 6e-6])
    variance = pats.noise_std(average, BARE).square()
    assert torch.allclose(pats.noise_std(average, BARE.model_copy(update={"noise_std": "linear"})), variance)
    uniform = pats.noise_std(average, BARE.model_copy(update={"intensity": "uniform"})).square()
    assert torch.allclose(uniform, variance.mean().expand(4))
    assert pats.noise_std(average, BARE.model_copy(update={"max_std": 0.001})).max() == pytest.approx(0.001)


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "bart"])
def test_after_one_step_only_matrices_and_biases_inside_layers_differ_from_adamax(architecture: str) -> None:
    one = ADAMAX.model_copy(update={"max_steps": 1})
    bench = Bench([("pats", {"strength": 1e-4})], architecture=architecture, training=one)
    perturbable = set(bench.trainee.sites.perturbable)
    noisy = bench.train()
    moved = changed(Bench(architecture=architecture, training=one).train(), noisy)
    assert moved <= perturbable
    assert {n for n in perturbable if noisy[n].numel() >= 256 and "pos_bias" not in n} <= moved
    assert not any("norm" in name.lower() or "embedding" in name for name in moved)


def groups_of(count: int) -> tuple[list[torch.Tensor], ...]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(40, 30), (30,), (50, 40), (7, 3, 2)][:count]
    return tuple([torch.randn(shape, generator=generator) for shape in shapes] for _ in range(3))


@pytest.mark.parametrize("options", [{}, {"sensitivity": "signed"}, {"intensity": "uniform"}, {"max_std": 1e-3}])
def test_many_tensors_at_once_follow_the_formulas_of_one(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What GPUs run, on the CPU: groups of tensors against one tensor at a time."""
    monkeypatch.setattr(pats, "GROUP", 1500)  # several groups, one of them of one tensor
    chosen = pats.PatsConfig(strength=1e-2, probability=1.0, **options)
    weights, gradients, averages = groups_of(4)
    averages = averages if "sensitivity" in options else [average.abs() for average in averages]
    expected = [average.clone() for average in averages]
    for average, weight, gradient in zip(expected, weights, gradients, strict=True):
        pats.update_sensitivity(average, weight, gradient, chosen, torch.empty_like(weight))
    pats.move_averages(averages, weights, gradients, chosen)
    assert all(torch.equal(a, b) for a, b in zip(averages, expected, strict=True))
    # One standard deviation per entry, from the mean of its own tensor: draws of 1 show it.
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, **_: self.fill_(1.0))
    before = [weight.clone() for weight in weights]
    measured = pats.perturb(weights, averages, chosen, torch.Generator().manual_seed(4), logging=True)
    stds = [pats.noise_std(average, chosen) for average in averages]
    for weight, start, std in zip(weights, before, stds, strict=True):
        torch.testing.assert_close(weight, start + std, rtol=1e-4, atol=1e-6)
    assert max(float(top) for top, _ in measured) == pytest.approx(max(float(std.max()) for std in stds), rel=1e-6)


def test_an_overflowing_step_leaves_averages_and_weights_alone_without_being_asked() -> None:
    weights, gradients, averages = groups_of(3)
    gradients[1][4] = float("inf")
    finite = pats.all_finite(gradients)
    assert not finite
    assert pats.all_finite(weights)
    kept = [[tensor.clone() for tensor in tensors] for tensors in (weights, averages)]
    options = pats.PatsConfig(strength=1e-2)
    pats.move_averages(averages, weights, gradients, options, finite)
    pats.perturb(weights, averages, options, torch.Generator().manual_seed(4), finite)
    for now, before in zip((weights, averages), kept, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(now, before, strict=True))

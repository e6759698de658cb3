"""PATS against the worked numbers and invariants of its paper."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.methods import pats
from regft_core.methods.pats import (
    PatsConfig,
    add_sparse_noise,
    choose,
    draw_noise,
    move_averages,
    noise_std,
    perturb,
    update_sensitivity,
)
from regft_core.schema.training import TrainingConfig
from regft_core.training.chunks import all_finite
from tests.methods.harness import Bench, changed

BARE = PatsConfig().model_copy(update={"epsilon": 0.0})  # the formulas without their guard
ADAMAX = TrainingConfig(epochs=2, batch_size=4, learning_rate=1e-3, optimizer="adamax")


def test_worked_numbers_of_one_tensor() -> None:
    std = noise_std(torch.tensor([1e-6, 2e-6, 3e-6, 6e-6]), BARE)
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
    noise = draw_noise(std, probability, generator)
    weight.add_(noise)
    return noise


def add_where_chosen(weight: Any, std: Any, probability: float, generator: torch.Generator) -> torch.Tensor:
    buffer = torch.empty_like(weight)
    chosen = choose(weight.numel(), probability, generator, buffer)
    return add_sparse_noise(weight, std.view(-1)[chosen], chosen, generator, buffer)


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
    std = noise_std(torch.tensor([1.0, 1.0, 1.0, 3.0]), options)  # mean 1.5, so 3 = mean / threshold
    assert std[3] == 0
    assert (std[:3] > 0).all()


def test_average_of_a_constant_sensitivity_has_no_bias_correction() -> None:
    weight, gradient = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([-1.0, 1.0, 4.0])
    average, buffer = torch.zeros(3), torch.empty(3)
    first: torch.Tensor | None = None
    for t in range(1, 9):
        update_sensitivity(average, weight, gradient, BARE, buffer)
        assert torch.allclose(average, (1 - 0.75**t) * torch.tensor([2.0, 1.0, 2.0]), rtol=1e-5)
        std = noise_std(average, BARE)
        first = std.clone() if first is None else first
        assert torch.allclose(std, first, rtol=1e-5)


def test_signed_sensitivity_gives_noise_only_where_the_sign_is_that_of_the_mean() -> None:
    options = BARE.model_copy(update={"sensitivity": "signed"})
    average, buffer = torch.zeros(4), torch.empty(4)
    update_sensitivity(average, torch.ones(4), torch.tensor([3.0, -1.0, 1.0, -0.5]), options, buffer)
    assert (average * 4).tolist() == [3.0, -1.0, 1.0, -0.5]
    assert (noise_std(average, options) > 0).tolist() == [True, False, True, False]
    assert (noise_std(-average, options) > 0).tolist() == [True, False, True, False]


def test_linear_uniform_and_limited_intensities() -> None:
    average = torch.tensor([1e-6, 2e-6, 3e-6, 6e-6])
    variance = noise_std(average, BARE).square()
    assert torch.allclose(noise_std(average, BARE.model_copy(update={"noise_std": "linear"})), variance)
    uniform = noise_std(average, BARE.model_copy(update={"intensity": "uniform"})).square()
    assert torch.allclose(uniform, variance.mean().expand(4))
    assert noise_std(average, BARE.model_copy(update={"max_std": 0.001})).max() == pytest.approx(0.001)


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
    chosen = PatsConfig(strength=1e-2, probability=1.0, **options)
    weights, gradients, averages = groups_of(4)
    averages = averages if "sensitivity" in options else [average.abs() for average in averages]
    expected = [average.clone() for average in averages]
    for average, weight, gradient in zip(expected, weights, gradients, strict=True):
        update_sensitivity(average, weight, gradient, chosen, torch.empty_like(weight))
    move_averages(averages, weights, gradients, chosen)
    assert all(torch.equal(a, b) for a, b in zip(averages, expected, strict=True))
    # One standard deviation per entry, from the mean of its own tensor: draws of 1 show it.
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, **_: self.fill_(1.0))
    before = [weight.clone() for weight in weights]
    measured = perturb(weights, averages, chosen, torch.Generator().manual_seed(4), logging=True)
    stds = [noise_std(average, chosen) for average in averages]
    for weight, start, std in zip(weights, before, stds, strict=True):
        torch.testing.assert_close(weight, start + std, rtol=1e-4, atol=1e-6)
    assert max(float(top) for top, _ in measured) == pytest.approx(max(float(std.max()) for std in stds), rel=1e-6)


@pytest.mark.parametrize("grouped", [False, True])
def test_under_fp16_a_step_that_overflows_in_the_head_alone_changes_nothing(grouped: bool) -> None:
    """The scaler skips the step, though the gradients of all perturbed tensors are finite."""
    run = Bench([("pats", {"strength": 1e-2})], training=ADAMAX, grouped=grouped)
    step = run.step(scaler=torch.amp.GradScaler("cpu"))
    step.task_loss(step.forward()).backward()
    run.trainee.raw("classifier.weight").grad[0, 0] = float("inf")
    before = {name: parameter.detach().clone() for name, parameter in run.trainee.named_raw()}
    run.method.observe_gradients(step)
    run.method.perturb_weights(step)
    assert not any(average.any() for average in run.method.averages.values())
    assert all(torch.equal(parameter, before[name]) for name, parameter in run.trainee.named_raw())


def test_an_overflowing_step_leaves_averages_and_weights_alone_without_being_asked() -> None:
    weights, gradients, averages = groups_of(3)
    gradients[1][4] = float("inf")
    finite = all_finite(gradients)
    assert not finite
    assert all_finite(weights)
    kept = [[tensor.clone() for tensor in tensors] for tensors in (weights, averages)]
    options = PatsConfig(strength=1e-2)
    move_averages(averages, weights, gradients, options, finite)
    perturb(weights, averages, options, torch.Generator().manual_seed(4), finite)
    for now, before in zip((weights, averages), kept, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(now, before, strict=True))

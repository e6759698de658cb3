"""SAGE against its formulas, by hand and step by step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.training.optimisers.adamax import DecoupledAdamax
from regft_core.training.update_rules import SensitivityGuided
from tests.methods.harness import Bench


def optimiser(values: list[float], guided: bool = True, decay_weights: float = 0.0, **more: Any) -> Any:
    parameter = torch.nn.Parameter(torch.tensor(values))
    group = {"names": ["w"], "params": [parameter], "base_lr": 0.1, "lr": 0.1, "weight_decay": decay_weights}
    options = {"base": "adamax", "betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.75, **more}
    return parameter, SensitivityGuided([group], names=["w"] if guided else [], **options)


def step(parameter: torch.nn.Parameter, rule: Any, gradient: list[float]) -> torch.Tensor:
    """The change of the parameter in one step."""
    before = parameter.detach().clone()
    parameter.grad = torch.tensor(gradient)
    rule.step()
    return parameter.detach() - before


def test_two_steps_by_hand() -> None:
    parameter, rule = optimiser([2.0])
    step(parameter, rule, [0.5])
    # I = 1, A = 0.25, factor 3; m = 0.05, u = 0.5, m / (1 - 0.9) / u = 1.
    assert float(parameter.detach()) == pytest.approx(2.0 - 0.1 * 3)
    change = step(parameter, rule, [1.0])
    sensitivity = 1.7 * 1.0
    average = 0.75 * 0.25 + 0.25 * sensitivity
    factor = abs(sensitivity - average) / average
    direction = (0.9 * 0.05 + 0.1) / (1 - 0.81) / 1.0
    assert float(change) == pytest.approx(-0.1 * factor * direction, rel=1e-5)


def test_epsilon_is_squared_in_the_factor() -> None:
    """At its usual 1e-8 nobody would see it: sensitivities of 1 stand beside an epsilon of 1/2 here."""
    parameter, rule = optimiser([2.0], base="adamax", eps=0.5)
    change = step(parameter, rule, [0.5])
    # I = 1, A = 0.25; m / (1 - 0.9) = 0.5, u = |g| + eps = 1.
    assert float(change) == pytest.approx(-0.1 * (0.75 / (0.25 + 0.5**2)) * 0.5)


def test_two_steps_of_adamw_by_hand() -> None:
    parameter, rule = optimiser([2.0], base="adamw")
    step(parameter, rule, [0.5])
    change = step(parameter, rule, [1.0])
    average = (0.75 * 0.25 * 1.0 + 0.25 * 2.0) / (1 - 0.75**2)
    factor = abs(2.0 - average) / average
    first = (0.9 * 0.05 + 0.1) / (1 - 0.9**2)
    second = (0.999 * 0.001 * 0.25 + 0.001) / (1 - 0.999**2)
    assert float(change) == pytest.approx(-0.1 * factor * first / second**0.5, rel=1e-4)


def test_everything_else_gets_the_base_rule() -> None:
    """Up to rounding, that of the optimisers of the same names."""
    values = [1.0, -2.0, 0.5]
    parameter, rule = optimiser(values, guided=False, decay_weights=0.01)
    other = torch.nn.Parameter(torch.tensor(values))
    plain = DecoupledAdamax([other], lr=0.1, betas=(0.9, 0.999), eps=1e-8)
    plain.param_groups[0]["weight_decay"] = 0.01
    for gradient in ([0.1, 5.0, -0.02], [-0.4, 0.1, 0.01], [0.2, 0.2, 0.2]):
        step(parameter, rule, gradient)
        other.grad = torch.tensor(gradient)
        plain.step()
        assert torch.allclose(parameter, other, rtol=1e-5, atol=1e-7)
    adamw, guided = torch.nn.Parameter(torch.tensor(values)), optimiser(values, guided=False, base="adamw")
    reference = torch.optim.AdamW([adamw], lr=0.1, weight_decay=0.0)
    for gradient in ([0.1, 5.0, -0.02], [-0.4, 0.1, 0.01]):
        step(*guided, gradient)
        adamw.grad = torch.tensor(gradient)
        reference.step()
        assert torch.allclose(guided[0], adamw, rtol=1e-5, atol=1e-7)


def test_weight_decay_of_the_paper_and_of_the_released_code() -> None:
    """Gradient tiny against the decay; the learning rate is scheduled to half of its base."""

    def change(**more: Any) -> float:
        parameter, rule = optimiser([2.0], decay_weights=0.5, **more)
        rule.param_groups[0]["lr"] = 0.05
        return float(step(parameter, rule, [1.0]))

    assert change() == pytest.approx(-0.05 * 0.5 * 2.0 - 0.05 * 3 * 1.0, rel=1e-5)
    # Inside the multiplied step, and a first moment of (1 - 0.9) that nothing corrects.
    assert change(released=True) == pytest.approx(-0.05 * 3 * (0.1 + 0.5 * 2.0), rel=1e-5)
    # AdamW's first factor is 0, so only the decay is left, here at the rate without its schedule.
    assert change(released=True, base="adamw") == pytest.approx(-0.1 * 0.5 * 2.0, rel=1e-5)
    assert change(base="adamw") == pytest.approx(-0.05 * 0.5 * 2.0, rel=1e-5)


def test_epsilon_of_the_released_adamw_comes_before_the_bias_correction() -> None:
    """g = eps = 1e-3: eps against sqrt(v) / sqrt(1 - beta2) = 1e-3, or against sqrt(v) = 1e-3 sqrt(1 - beta2)."""
    for released, scale in ((False, 2e-3), (True, 1e-3 + 1e-3 / 0.001**0.5)):
        parameter, rule = optimiser([1.0], guided=False, base="adamw", eps=1e-3, released=released)
        assert float(step(parameter, rule, [1e-3])) == pytest.approx(-0.1 * 1e-3 / scale, rel=1e-3)


def test_the_control_multiplies_by_the_mean() -> None:
    parameter, rule = optimiser([1.0, 1.0, 1.0], mean=True)
    step(parameter, rule, [0.1, 0.1, 0.1])
    before = parameter.tolist()
    average = torch.full((3,), 0.25 * 0.1)
    gradient = torch.tensor([0.1, 0.4, -0.2])
    own = (torch.tensor(before) * gradient).abs()
    moved = 0.75 * average + 0.25 * own
    mean = float(((own - moved).abs() / moved).mean())
    first = 0.9 * 0.01 + 0.1 * gradient
    infinity = torch.maximum(torch.full((3,), 0.0999), gradient.abs())
    expected = -0.1 * mean * first / (1 - 0.81) / infinity
    assert step(parameter, rule, gradient.tolist()).tolist() == pytest.approx(expected.tolist(), rel=1e-4)


@pytest.mark.parametrize("base", ["adamax", "adamw"])
def test_multiplied_are_weights_and_biases_inside_the_layers(base: str) -> None:
    run = Bench([("sage", {"base": base})])
    loop = run.loop()
    loop.train()
    assert isinstance(loop.optimizer, SensitivityGuided)
    states = {name: loop.optimizer.state[p] for g in loop.optimizer.param_groups for name, p in _named(g)}
    guided = {name for name, state in states.items() if "sensitivity" in state}
    assert guided == set(run.trainee.sites.perturbable)
    assert "bert.encoder.layer.0.output.dense.bias" in guided
    assert not any("LayerNorm" in name or "embeddings" in name or "classifier" in name for name in guided)


def _named(group: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    return list(zip(group["names"], group["params"], strict=True))

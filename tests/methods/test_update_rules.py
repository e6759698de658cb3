"""Update rules: L2-SP and RecAdam, which pull toward weights, and SAGE, against numbers worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regft_core.errors import RunFailed
from regft_core.methods.l2_sp import penalty
from regft_core.methods.rec_adam import RecAdamConfig, task_share
from regft_core.methods.sage import SageConfig
from regft_core.schema.training import TrainingConfig
from regft_core.training.optim import optimizer_tensors
from regft_core.training.optimisers.adamax import DecoupledAdamax
from regft_core.training.update_rules import RecallAdam, SensitivityGuided
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, calls_of

# --------------------------------------------------------------------------------------------------------------- l2 sp


NAME, POOLER = "bert.encoder.layer.0.output.dense.weight", "bert.pooler.dense.weight"


def test_worked_penalty_and_gradient() -> None:
    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    other = torch.tensor([[3.0]], requires_grad=True)
    # 0.5 * 0.1 * ((1 - 0)^2 + (-2 - 1)^2 + (3 - 1)^2) = 0.05 * 14
    term = penalty([weight, other], [torch.tensor([0.0, 1.0]), torch.tensor([[1.0]])], 0.1)
    assert float(term.detach()) == pytest.approx(0.7)
    term.backward()
    assert weight.grad.tolist() == pytest.approx([0.1, -0.3])
    assert other.grad.item() == pytest.approx(0.2)
    assert float(penalty([weight.detach()], None, 2.0)) == pytest.approx(5.0)


def test_the_decoupled_pull_shrinks_the_distance_by_rate_times_strength() -> None:
    training = TRAINING.model_copy(update={"max_steps": 1, "schedule": "constant", "warmup_ratio": 0.0})
    bench = Bench([("l2_sp", {"form": "decoupled", "strength": 300.0})], training=training)
    plain = Bench(training=training.model_copy(update={"weight_decay": 0.0}))
    start = {name: p.detach().clone() for name, p in bench.trainee.named_raw()}
    pulled, free = bench.train(), plain.train()
    for name in (NAME, "bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.output.dense.bias"):
        expected = start[name] + (1 - 1e-3 * 300) * (free[name] - start[name])
        assert torch.allclose(pulled[name], expected, atol=1e-7)


def test_under_fp16_a_step_that_overflows_is_not_pulled() -> None:
    bench = Bench([("l2_sp", {"form": "decoupled", "strength": 300.0, "toward": "zero"})])
    optimizer = SimpleNamespace(param_groups=[{"lr": 1e-3, "names": [NAME]}])
    for value, moves in ((float("inf"), False), (1.0, True)):
        step = bench.step(scaler=torch.amp.GradScaler("cpu"), optimizer=optimizer)
        step.task_loss(step.forward()).backward()
        bench.trainee.raw("classifier.weight").grad[0, 0] = value
        before = bench.trainee.raw(NAME).detach().clone()
        bench.method.observe_gradients(step)
        bench.method.pull_weights(step)
        assert torch.equal(bench.trainee.raw(NAME), before) is not moves


def test_a_step_that_fp16_skips_has_no_gradient_norm_and_a_run_of_such_steps_fails() -> None:
    training = TRAINING.model_copy(update={"precision": "fp16"})
    loop, lost = (Bench(training=training).loop() for _ in range(2))
    loop.scaler, lost.scaler = (torch.amp.GradScaler("cpu", 2.0**126, 2.0, back) for back in (2.0**-112, 0.99))
    assert [norm is None for *_, norm in loop.train().curve] == [True, *[False] * 5]
    with raises_code(RunFailed, "not-finite", "all 6 steps", "bf16"):
        lost.train()


def test_the_target_may_be_the_start_of_the_phase_or_zero() -> None:
    """Of a start that lies 0.1 above the checkpoint: the gradient of the penalty on one tensor."""
    moved = {name: value + 0.1 for name, value in Bench().trainee.plain_weights().items() if value.is_floating_point()}
    plain = Bench(start=moved).gradients()[NAME]
    for toward, expected in (
        ("checkpoint", torch.tensor(1.0)),
        ("start", torch.tensor(0.0)),
        ("zero", 10 * moved[NAME]),
    ):
        found = Bench([("l2_sp", {"toward": toward, "strength": 10.0})], start=moved).gradients()[NAME]
        assert torch.allclose(found - plain, expected, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------ rec adam


PROTOCOL = TrainingConfig(learning_rate=0.1, betas=(0.9, 0.99), epsilon=1e-8)


def optimiser(
    strength: float, *, decay: float = 0.0, anchored: bool = True, value: float = 3.0
) -> tuple[RecallAdam, torch.nn.Parameter]:
    parameter = torch.nn.Parameter(torch.tensor([value]))
    group = {"names": ["w"], "params": [parameter], "weight_decay": decay, "lr": 0.1}
    return RecallAdam([group], {"w": torch.tensor([1.0])} if anchored else {}, PROTOCOL, strength), parameter


FIXED: dict[str, Any] = {"midpoint": 250, "rate": 0.1}
LINEAR: dict[str, Any] = {"annealing": "linear", "midpoint": 500}


@pytest.mark.parametrize(
    ("options", "steps", "step", "expected"),
    [
        (FIXED, 10_000, 250, 0.5),
        (FIXED, 10_000, 251, 1 / (1 + math.exp(-0.1))),
        (FIXED, 10_000, 230, 1 / (1 + math.e**2)),
        # Left out, the midpoint is a quarter of the run, and the rate 25 / 25 = 1 per step.
        ({}, 100, 25, 0.5),
        ({}, 100, 26, 1 / (1 + math.exp(-1))),
        ({}, 10**6, 1, 0.0),
        (LINEAR, 1000, 250, 0.5),
        (LINEAR, 1000, 700, 1.0),
    ],
)
def test_worked_task_shares(options: dict[str, Any], steps: int, step: int, expected: float) -> None:
    assert task_share(step, steps, RecAdamConfig(**options)) == pytest.approx(expected, abs=1e-9)


def test_worked_step_with_gradient_pull_and_decay() -> None:
    rec, parameter = optimiser(strength=4.0, decay=0.5)
    rec.param_groups[0]["task_share"] = 0.25
    parameter.grad = torch.tensor([2.0])
    rec.step()
    # The first Adam direction is the gradient's sign: 3 - 0.1 * 0.25 = 2.975.
    # Pull: 0.1 * 0.75 * 4 = 0.3 of the distance to 1; decay: 1 - 0.1 * 0.5.
    assert float(parameter.detach()) == pytest.approx((2.975 - 0.3 * 1.975) * 0.95)


def test_steps_are_counted_from_one() -> None:
    loop = Bench([("rec_adam", {"midpoint": 3, "rate": 0.7})]).loop()
    seen = calls_of(loop.optimizer, "step", lambda *_: {group["task_share"] for group in loop.optimizer.param_groups})
    loop.train()
    expected = [1 / (1 + math.exp(-0.7 * (step - 3))) for step in range(1, 7)]
    assert [share for (share,) in seen] == pytest.approx(expected)


def test_what_has_no_anchor_takes_plain_steps() -> None:
    rec, parameter = optimiser(strength=4.0, anchored=False)
    rec.param_groups[0]["task_share"] = 0.25
    parameter.grad = torch.tensor([2.0])
    rec.step()
    assert float(parameter.detach()) == pytest.approx(2.9)


def test_learning_only_is_adamw() -> None:
    torch.manual_seed(0)
    rec, own = optimiser(strength=4.0)
    other = torch.nn.Parameter(own.detach().clone())
    adamw = torch.optim.AdamW([other], lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    for _ in range(20):
        gradient = torch.randn(1)
        own.grad, other.grad = gradient.clone(), gradient.clone()
        rec.step()
        adamw.step()
    assert torch.allclose(own, other, atol=1e-6)


def test_left_out_the_strength_is_the_published_share_of_the_distance() -> None:
    """At the published learning rate it is the published strength: 0.1 / 2e-5 = 5000."""
    bench = Bench([("rec_adam", {})])
    bench.loop()
    assert bench.method._optimizer.strength == pytest.approx(0.1 / 1e-3)


@pytest.mark.parametrize("lacks", [False, True])
def test_the_head_is_not_pulled(lacks: bool) -> None:
    """Nor is a pooler that the checkpoint lacks."""
    bench = Bench([("rec_adam", {})], masked_lm=lacks)
    bench.loop()
    pulled = bench.method._anchors
    assert [name in pulled for name in (NAME, "classifier.weight", POOLER)] == [True, False, not lacks]


def test_a_random_start_keeps_the_head_and_is_recalled() -> None:
    plain = Bench().trainee.plain_weights()
    bench = Bench([("rec_adam", {"start": "random", "strength": 900.0})])
    drawn = bench.trainee.plain_weights()
    assert not torch.equal(drawn[NAME], plain[NAME])
    assert torch.equal(drawn["classifier.weight"], plain["classifier.weight"])
    assert torch.equal(bench.trainee.anchor("checkpoint")[NAME], plain[NAME])
    recalled = Bench([("rec_adam", {"start": "random", "strength": 900.0, "midpoint": 100})]).train()
    assert float((recalled[NAME] - plain[NAME]).norm()) < 0.1 * float((drawn[NAME] - plain[NAME]).norm())


# ----------------------------------------------------------------------------------------------------------------- sage


def sage(
    values: list[float], guided: bool = True, decay_weights: float = 0.0, epsilon: float = 1e-8, **options: Any
) -> Any:
    parameter = torch.nn.Parameter(torch.tensor(values))
    group = {"names": ["w"], "params": [parameter], "base_lr": 0.1, "lr": 0.1, "weight_decay": decay_weights}
    protocol = TrainingConfig(betas=(0.9, 0.999), epsilon=epsilon)
    return parameter, SensitivityGuided([group], ["w"] if guided else [], protocol, SageConfig(**options))


def step(parameter: torch.nn.Parameter, rule: Any, gradient: list[float]) -> torch.Tensor:
    """The change of the parameter in one step."""
    before = parameter.detach().clone()
    parameter.grad = torch.tensor(gradient)
    rule.step()
    return parameter.detach() - before


def test_two_steps_by_hand() -> None:
    parameter, rule = sage([2.0])
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
    parameter, rule = sage([2.0], epsilon=0.5)
    change = step(parameter, rule, [0.5])
    # I = 1, A = 0.25; m / (1 - 0.9) = 0.5, u = |g| + eps = 1.
    assert float(change) == pytest.approx(-0.1 * (0.75 / (0.25 + 0.5**2)) * 0.5)


def test_two_steps_of_adamw_by_hand() -> None:
    parameter, rule = sage([2.0], base="adamw")
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
    parameter, rule = sage(values, guided=False, decay_weights=0.01)
    other = torch.nn.Parameter(torch.tensor(values))
    plain = DecoupledAdamax([other], lr=0.1, betas=(0.9, 0.999), eps=1e-8)
    plain.param_groups[0]["weight_decay"] = 0.01
    for gradient in ([0.1, 5.0, -0.02], [-0.4, 0.1, 0.01], [0.2, 0.2, 0.2]):
        step(parameter, rule, gradient)
        other.grad = torch.tensor(gradient)
        plain.step()
        assert torch.allclose(parameter, other, rtol=1e-5, atol=1e-7)
    adamw, guided = torch.nn.Parameter(torch.tensor(values)), sage(values, guided=False, base="adamw")
    reference = torch.optim.AdamW([adamw], lr=0.1, weight_decay=0.0)
    for gradient in ([0.1, 5.0, -0.02], [-0.4, 0.1, 0.01]):
        step(*guided, gradient)
        adamw.grad = torch.tensor(gradient)
        reference.step()
        assert torch.allclose(guided[0], adamw, rtol=1e-5, atol=1e-7)


def test_weight_decay_of_the_paper_and_of_the_released_code() -> None:
    """Gradient tiny against the decay; the learning rate is scheduled to half of its base."""

    def change(**more: Any) -> float:
        parameter, rule = sage([2.0], decay_weights=0.5, **more)
        rule.param_groups[0]["lr"] = 0.05
        return float(step(parameter, rule, [1.0]))

    assert change() == pytest.approx(-0.05 * 0.5 * 2.0 - 0.05 * 3 * 1.0, rel=1e-5)
    # Inside the multiplied step, and a first moment of (1 - 0.9) that nothing corrects.
    assert change(variant="released") == pytest.approx(-0.05 * 3 * (0.1 + 0.5 * 2.0), rel=1e-5)
    # AdamW's first factor is 0, so only the decay is left, here at the rate without its schedule.
    assert change(variant="released", base="adamw") == pytest.approx(-0.1 * 0.5 * 2.0, rel=1e-5)
    assert change(base="adamw") == pytest.approx(-0.05 * 0.5 * 2.0, rel=1e-5)


def test_epsilon_of_the_released_adamw_comes_before_the_bias_correction() -> None:
    """g = eps = 1e-3: eps against sqrt(v) / sqrt(1 - beta2) = 1e-3, or against sqrt(v) = 1e-3 sqrt(1 - beta2)."""
    for variant, scale in (("paper", 2e-3), ("released", 1e-3 + 1e-3 / 0.001**0.5)):
        parameter, rule = sage([1.0], guided=False, base="adamw", epsilon=1e-3, variant=variant)
        assert float(step(parameter, rule, [1e-3])) == pytest.approx(-0.1 * 1e-3 / scale, rel=1e-3)


def test_the_control_multiplies_by_the_mean() -> None:
    parameter, rule = sage([1.0, 1.0, 1.0], multiplier="mean")
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
    guided = {name.split("/")[1] for name in optimizer_tensors(loop.optimizer) if name.endswith("/sensitivity")}
    assert guided == set(run.trainee.sites.perturbable)
    assert "bert.encoder.layer.0.output.dense.bias" in guided
    assert not any("LayerNorm" in name or "embeddings" in name or "classifier" in name for name in guided)

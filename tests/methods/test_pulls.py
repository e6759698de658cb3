"""Pulls toward the pretrained weights: L2-SP and RecAdam against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from regft_core.methods.l2_sp import penalty
from regft_core.methods.rec_adam import RecAdamConfig, task_share
from regft_core.schema.training import TrainingConfig
from regft_core.training.update_rules import RecallAdam
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
    assert weight.grad is not None
    assert weight.grad.tolist() == pytest.approx([0.1, -0.3])
    assert other.grad is not None
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

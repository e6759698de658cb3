"""RecAdam against numbers worked out by hand and the invariants of its card."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from regft_core.methods.rec_adam import RecAdam, RecAdamConfig, task_share
from regft_core.schema.method import Phase
from regft_core.schema.methods import DataConfig
from regft_core.schema.training import TrainingConfig
from regft_core.training.update_rules import RecallAdam
from tests.methods.harness import TRAINING, Bench, largest_difference, same

NAME = "bert.encoder.layer.0.output.dense.weight"
PROTOCOL = TrainingConfig(learning_rate=0.1, betas=(0.9, 0.99), epsilon=1e-8)


def optimiser(
    strength: float, *, decay: float = 0.0, anchored: bool = True, value: float = 3.0
) -> tuple[RecallAdam, torch.nn.Parameter]:
    parameter = torch.nn.Parameter(torch.tensor([value]))
    group = {"names": ["w"], "params": [parameter], "weight_decay": decay, "base_lr": 0.1}
    return RecallAdam([group], {"w": torch.tensor([1.0])} if anchored else {}, PROTOCOL, strength), parameter


@pytest.mark.parametrize(
    ("step", "expected"), [(250, 0.5), (251, 1 / (1 + math.exp(-0.1))), (230, 1 / (1 + math.e**2))]
)
def test_worked_task_shares(step: int, expected: float) -> None:
    assert task_share(step, 10_000, RecAdamConfig(midpoint=250, rate=0.1)) == pytest.approx(expected)


def test_left_out_the_midpoint_is_a_quarter_of_the_run() -> None:
    assert task_share(25, 100, RecAdamConfig()) == pytest.approx(0.5)
    # rate 25 / 25 = 1 per step
    assert task_share(26, 100, RecAdamConfig()) == pytest.approx(1 / (1 + math.exp(-1)))
    assert task_share(250, 1000, RecAdamConfig(annealing="linear", midpoint=500)) == 0.5
    assert task_share(700, 1000, RecAdamConfig(annealing="linear", midpoint=500)) == 1.0
    assert task_share(1, 10**6, RecAdamConfig()) == pytest.approx(0.0, abs=1e-9)


def test_without_gradient_the_distance_shrinks_by_exactly_the_pull() -> None:
    rec, parameter = optimiser(strength=4.0)
    rec.param_groups[0]["task_share"] = 0.25
    parameter.grad = torch.zeros(1)
    rec.step()
    # 1 + (3 - 1) * (1 - 0.1 * 0.75 * 4)
    assert float(parameter.detach()) == pytest.approx(1 + 2 * 0.7)


def test_worked_step_with_gradient_pull_and_decay() -> None:
    rec, parameter = optimiser(strength=4.0, decay=0.5)
    rec.param_groups[0]["task_share"] = 0.25
    parameter.grad = torch.tensor([2.0])
    rec.step()
    # The first Adam direction is the gradient's sign: 3 - 0.1 * 0.25 = 2.975.
    # Pull: 0.1 * 0.75 * 4 = 0.3 of the distance to 1; decay: 1 - 0.1 * 0.5.
    assert float(parameter.detach()) == pytest.approx((2.975 - 0.3 * 1.975) * 0.95)


def test_steps_are_counted_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"midpoint": 3, "rate": 0.7}
    bench = Bench([("rec_adam", options)])
    loop, seen = bench.loop(), []
    original = loop.optimizer.step

    def look(*args: Any, **more: Any) -> Any:
        seen.append({group["task_share"] for group in loop.optimizer.param_groups})
        return original(*args, **more)

    monkeypatch.setattr(loop.optimizer, "step", look)
    loop.train()
    expected = [1 / (1 + math.exp(-0.7 * (step - 3))) for step in range(1, 7)]
    assert [share for (share,) in seen] == pytest.approx(expected)
    assert seen[2] == {0.5}


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


def test_constant_annealing_is_plain_fine_tuning() -> None:
    assert same(Bench([("rec_adam", {"annealing": "constant"})]).train(), Bench().train())


def test_late_in_the_run_it_is_close_to_plain_fine_tuning() -> None:
    options = {"midpoint": 1, "rate": 100.0, "strength": 0.0}
    plain = Bench(training=TRAINING.model_copy(update={"weight_decay": 0.0})).train()
    late = Bench([("rec_adam", options)], training=TRAINING.model_copy(update={"weight_decay": 0.0})).train()
    # The first step has lambda 1/2; its rate is the warm-up's.
    assert largest_difference(late, plain) < 2e-3
    assert largest_difference(Bench([("rec_adam", {"strength": 0.0})]).train(), plain) > 0


def test_left_out_the_strength_is_the_published_share_of_the_distance() -> None:
    bench = Bench([("rec_adam", {})])
    bench.loop()
    assert bench.stack.regularisers[0]._optimizer.strength == pytest.approx(0.1 / 1e-3)  # type: ignore[attr-defined]
    assert not RecAdam.check_options(RecAdamConfig(), phase(1e-2))
    # At the published learning rate this is the published strength.
    assert pytest.approx(5000) == 0.1 / 2e-5


def test_the_head_is_not_pulled() -> None:
    bench = Bench([("rec_adam", {})])
    bench.loop()
    regulariser = bench.stack.regularisers[0]
    assert NAME in regulariser._anchors  # type: ignore[attr-defined]
    assert "classifier.weight" not in regulariser._anchors  # type: ignore[attr-defined]
    # A pooler that the checkpoint lacks is new as well.
    lacking = Bench([("rec_adam", {})], masked_lm=True)
    assert "bert.pooler.dense.weight" not in lacking.stack.regularisers[0]._anchors  # type: ignore[attr-defined]


def test_a_strong_pull_stays_near_the_pretrained_weights() -> None:
    start = Bench().trainee.plain_weights()
    gaps = []
    for strength in (0.0, 900.0):
        trained = Bench([("rec_adam", {"strength": strength, "midpoint": 4, "rate": 0.1})]).train()
        gaps.append(float((trained[NAME] - start[NAME]).norm()))
    assert gaps[1] < 0.8 * gaps[0]


def test_a_random_start_keeps_the_head_and_is_recalled() -> None:
    plain = Bench().trainee.plain_weights()
    bench = Bench([("rec_adam", {"start": "random", "strength": 900.0})])
    drawn = bench.trainee.plain_weights()
    assert not torch.equal(drawn[NAME], plain[NAME])
    assert torch.equal(drawn["classifier.weight"], plain["classifier.weight"])
    assert torch.equal(bench.trainee.anchor("checkpoint")[NAME], plain[NAME])
    recalled = Bench([("rec_adam", {"start": "random", "strength": 900.0, "midpoint": 100})]).train()
    assert float((recalled[NAME] - plain[NAME]).norm()) < 0.1 * float((drawn[NAME] - plain[NAME]).norm())


def phase(rate: float = 1e-4) -> Phase:
    return Phase("finetune", DataConfig(), "checkpoint", None, None, (), TrainingConfig(learning_rate=rate), {})

"""R-Drop against numbers worked out by hand and the invariants of its paper."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.hooks.declare import MainPass
from regft_core.methods.r_drop import RDrop
from regft_core.schema import DropoutConfig
from regft_core.training.distances import (
    jensen_shannon,
    kl,
    reversed_jensen_shannon,
    squared_difference,
    symmetric_kl,
)
from tests.methods.harness import Bench

STILL = DropoutConfig(hidden=0.0, attention=0.0)
#: p = (1/2, 1/2) and q = (3/4, 1/4) as logits.
P, Q = torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3.0), 0.0]])
#: KL(p || q) = ln(4/3) / 2 and KL(q || p) = 3/4 ln(3/2) + 1/4 ln(1/2).
P_Q, Q_P = 0.143841, 0.130812


def r_drop(bench: Bench) -> RDrop:
    found = next(r for r in bench.stack.regularisers if r.name == "r_drop")
    assert isinstance(found, RDrop)
    return found


def gradients(bench: Bench) -> dict[str, Tensor]:
    bench.stack.backward(bench.step())
    return {name: p.grad.clone() for name, p in bench.trainee.named_raw() if p.grad is not None}


def loss_of(bench: Bench, one: Tensor, two: Tensor, labels: Tensor) -> float:
    """The whole loss with two given predictions."""
    step = bench.step()
    step.batch = type(step.batch)(**{**vars(step.batch), "labels": labels})
    step.forward = lambda *args, **options: two  # type: ignore[method-assign]
    main = MainPass(one, None, step.task_loss(one))
    return float(main.loss + r_drop(bench).terms(step, main))


def test_divergences_of_known_distributions() -> None:
    assert float(kl(P, Q)) == pytest.approx(P_Q, abs=1e-6)
    assert float(kl(Q, P)) == pytest.approx(Q_P, abs=1e-6)
    assert float(symmetric_kl(P, Q)) == pytest.approx(P_Q + Q_P, abs=1e-6)
    # m = (5/8, 3/8): (KL(p || m) + KL(q || m)) / 2 and its reverse.
    assert float(jensen_shannon(P, Q)) == pytest.approx(0.033822, abs=1e-6)
    assert float(reversed_jensen_shannon(P, Q)) == pytest.approx(0.034841, abs=1e-6)
    assert squared_difference(torch.tensor([[1.0], [4.0]]), torch.tensor([[3.0], [1.0]])).tolist() == [4.0, 9.0]
    far = torch.tensor([[60.0, -60.0]])
    assert float(jensen_shannon(far, -far)) == pytest.approx(math.log(2), abs=1e-6)
    for one, two in (((2, 1), (2,)), ((2, 2), (2, 2))):
        with pytest.raises(ValueError, match=r"must be \[B, 1\]"):
            squared_difference(torch.zeros(one), torch.zeros(two))


@pytest.mark.parametrize(
    ("options", "architecture", "expected"),
    [
        # CE(p, 0) = ln 2, CE(q, 0) = ln(4/3); two equal examples.
        ({"alpha": 0.5}, "bert", math.log(2) + math.log(4 / 3) + 0.5 * (P_Q + Q_P) / 2),
        ({}, "bert", math.log(2) + math.log(4 / 3) + (P_Q + Q_P) / 2),
        ({"cross_entropy": "mean"}, "bert", (math.log(2) + math.log(4 / 3)) / 2 + (P_Q + Q_P) / 2),
        ({"cross_entropy": "first"}, "bert", math.log(2) + (P_Q + Q_P) / 2),
        ({"variant": "released"}, "bert", math.log(2) + math.log(4 / 3) + 0.5 * 2 * (P_Q + Q_P) / 2),
        ({"variant": "released"}, "roberta", math.log(2) / 2 + 0.7 * 2 * (P_Q + Q_P) / 2),
        ({"variant": "released", "alpha": 2.0}, "roberta", math.log(2) / 2 + 2 * 2 * (P_Q + Q_P) / 2),
    ],
)
def test_loss_of_known_predictions(options: dict[str, Any], architecture: str, expected: float) -> None:
    bench = Bench([("r_drop", options)], architecture=architecture)
    loss = loss_of(bench, P.repeat(2, 1), Q.repeat(2, 1), torch.tensor([0, 0]))
    assert loss == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "architecture", "expected"),
    [
        ({"alpha": 0.5}, "bert", 1.0 + 4.0 + 0.5 * 9.0),
        ({"variant": "released"}, "bert", 1.0 + 4.0 + 1.0 * 9.0),
        ({"variant": "released"}, "roberta", 0.5 * 1.0 + 0.8 * 9.0),
    ],
)
def test_regression_compares_squares(options: dict[str, Any], architecture: str, expected: float) -> None:
    bench = Bench([("r_drop", options)], architecture=architecture, kind="regression")
    loss = loss_of(bench, torch.tensor([[1.0]]), torch.tensor([[-2.0]]), torch.tensor([0.0]))
    assert loss == pytest.approx(expected)


def test_exchange_of_the_passes_leaves_the_loss_unchanged() -> None:
    bench, labels = Bench([("r_drop", {"alpha": 0.7})], labels=3), torch.tensor([0, 2, 1])
    one, two = torch.randn(3, 3), torch.randn(3, 3)
    assert loss_of(bench, one, two, labels) == pytest.approx(loss_of(bench, two, one, labels), abs=1e-6)


@pytest.mark.parametrize(("rule", "factor"), [("sum", 2.0), ("mean", 1.0), ("first", 1.0)])
def test_without_dropout_the_divergence_is_zero_and_the_gradient_a_multiple(rule: str, factor: float) -> None:
    bench = Bench([("r_drop", {"cross_entropy": rule})], dropout=STILL)
    plain = gradients(Bench(dropout=STILL))
    for name, value in gradients(bench).items():
        assert torch.allclose(value, factor * plain[name], rtol=1e-5, atol=1e-7), name
    assert bench.stack.diagnostics().values == [("r_drop.divergence", 0, pytest.approx(0.0, abs=1e-7))]


def test_the_first_pass_is_that_of_plain_fine_tuning_and_the_second_has_masks_of_its_own() -> None:
    bench = Bench([("r_drop", {})])
    plain = Bench().step().forward()
    step = bench.step()
    assert torch.equal(step.forward(), plain)
    second = step.forward("r_drop.second", draw="r_drop.second")
    assert not torch.equal(second, plain)
    assert torch.equal(second, step.forward("r_drop.second", draw="r_drop.second"))


def test_gradient_flows_through_both_predictions() -> None:
    one, two = P.clone().requires_grad_(), Q.clone().requires_grad_()
    r_drop(Bench([("r_drop", {})])).divergence(one, two, "classification").backward()
    assert one.grad is not None
    assert two.grad is not None
    assert one.grad.abs().sum() > 0
    assert two.grad.abs().sum() > 0


def test_noise_of_hype_is_drawn_anew_in_the_second_pass() -> None:
    """Card 24: with the noise alone to tell the passes apart, the divergence is of the order of its square."""
    found = {}
    for scale in (0.0, 1e-2, 2e-2):
        bench = Bench([("r_drop", {}), ("hype", {"scale": scale})], dropout=DropoutConfig(attention=0.0))
        bench.stack.backward(bench.step())
        found[scale] = bench.stack.diagnostics().values[0][2]
    assert found[0.0] == pytest.approx(0.0, abs=1e-7)
    assert found[1e-2] > 1e-6
    assert found[2e-2] / found[1e-2] == pytest.approx(4.0, rel=0.3)


def test_an_encoder_without_dropout_is_marked() -> None:
    assert Bench([("r_drop", {})]).stack.marks() == []
    (mark,) = Bench([("r_drop", {})], dropout=STILL).stack.marks()
    assert "without dropout" in mark

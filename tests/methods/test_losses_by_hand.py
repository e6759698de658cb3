"""Losses of given predictions of the plain and of every further pass, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.training.distances import jensen_shannon, kl, reversed_jensen_shannon, squared_difference, symmetric_kl
from tests.methods.harness import Bench

#: p = (1/2, 1/2) and q = (3/4, 1/4) as logits of two equal examples, whose label is 0.
P, Q = torch.tensor([[0.0, 0.0]] * 2), torch.tensor([[math.log(3.0), 0.0]] * 2)
CE_P, CE_Q = math.log(2), math.log(4 / 3)
#: KL(p || q) = ln(4/3) / 2 and KL(q || p) = 3/4 ln(3/2) + 1/4 ln(1/2); JS with m = (5/8, 3/8), and of its reverse.
P_Q, Q_P, JS, REVERSED = 0.143841, 0.130812, 0.033822, 0.034841
BOTH = P_Q + Q_P
#: Values 1 and -2 of a target of 0.
ONE, TWO = torch.tensor([[1.0]]), torch.tensor([[-2.0]])
RANDOM: dict[str, Any] = {"direction": "random"}
RELEASED: dict[str, Any] = {"variant": "released"}
ROBERTA: dict[str, Any] = {"architecture": "roberta"}
#: (regulariser, options, form of the bench, plain and further prediction, loss)
LOSSES: list[tuple[str, dict[str, Any], dict[str, Any], Tensor, Tensor, float]] = [
    ("r_drop", {"alpha": 0.5}, {}, P, Q, CE_P + CE_Q + 0.5 * BOTH / 2),
    ("r_drop", {}, {}, P, Q, CE_P + CE_Q + BOTH / 2),
    ("r_drop", {"cross_entropy": "mean"}, {}, P, Q, (CE_P + CE_Q) / 2 + BOTH / 2),
    ("r_drop", {"cross_entropy": "first"}, {}, P, Q, CE_P + BOTH / 2),
    ("r_drop", RELEASED, {}, P, Q, CE_P + CE_Q + 0.5 * 2 * BOTH / 2),
    ("r_drop", RELEASED, ROBERTA, P, Q, CE_P / 2 + 0.7 * 2 * BOTH / 2),
    ("r_drop", {**RELEASED, "alpha": 2.0}, ROBERTA, P, Q, CE_P / 2 + 2 * 2 * BOTH / 2),
    ("r_drop", {"alpha": 0.5}, {}, ONE, TWO, 1.0 + 4.0 + 0.5 * 9.0),
    ("r_drop", RELEASED, {}, ONE, TWO, 1.0 + 4.0 + 1.0 * 9.0),
    ("r_drop", RELEASED, ROBERTA, ONE, TWO, 0.5 * 1.0 + 0.8 * 9.0),
    ("cutoff", {"alpha": 0.5, "beta": 2.0}, {}, P, Q, CE_P + 0.5 * CE_Q + 2 * JS),
    ("cutoff", {**RELEASED, "kind": "span"}, {}, P, Q, CE_P + CE_Q + REVERSED),
    ("cutoff", {**RELEASED, "kind": "token"}, {}, P, Q, CE_Q + REVERSED),
    ("cutoff", {}, {}, ONE, TWO, 1.0 + 4.0 + 9.0),
    ("cutoff", {**RELEASED, "kind": "span"}, {}, ONE, TWO, 1.0 + 4.0),
    ("r3f", {"weight": 0.5}, {}, P, Q, CE_P + 0.5 * BOTH),  # the directions are summed, the batch is averaged
    ("r3f", {"weight": 0.5}, {}, Q, P, CE_Q + 0.5 * BOTH),
    ("r3f", {"weight": 0.5}, {}, P, torch.stack([Q[0], P[0]]), CE_P + 0.25 * BOTH),
    ("r3f", {"weight": 0.5}, {}, ONE, TWO, 1.0 + 4.5),
    ("smart", {**RANDOM, "weight": 3.0, "proximal": 0.0}, {}, P, Q, CE_P + 3 * BOTH),
    ("smart", {**RANDOM, "weight": 0.0, "proximal": 2.0}, {}, P, Q, CE_P + 2 * BOTH),
    ("smart", {**RANDOM, "weight": 3.0, "proximal": 2.0}, {}, P, Q, CE_P + 5 * BOTH),
    ("smart", {**RANDOM, "weight": 3.0, "proximal": 2.0}, {}, Q, Q, CE_Q),
    ("smart", {**RANDOM, "weight": 3.0, "proximal": 2.0}, {}, ONE, TWO, 1.0 + 5 * 9.0),
]


@pytest.mark.parametrize(("name", "options", "form", "plain", "other", "expected"), LOSSES)
def test_the_loss_is_the_formula(
    name: str, options: dict[str, Any], form: dict[str, Any], plain: Tensor, other: Tensor, expected: float
) -> None:
    kind = "regression" if plain is ONE else "classification"
    task, terms = Bench([(name, options)], kind=kind, **form).terms(plain, other)
    assert float(task + terms) == pytest.approx(expected, abs=1e-5)


def test_divergences_of_known_distributions() -> None:
    assert kl(P, Q).tolist() == pytest.approx([P_Q] * 2, abs=1e-6)
    assert kl(Q, P).tolist() == pytest.approx([Q_P] * 2, abs=1e-6)
    assert symmetric_kl(P, Q).tolist() == pytest.approx([BOTH] * 2, abs=1e-6)
    assert jensen_shannon(P, Q).tolist() == pytest.approx([JS] * 2, abs=1e-6)
    assert reversed_jensen_shannon(P, Q).tolist() == pytest.approx([REVERSED] * 2, abs=1e-6)
    assert squared_difference(torch.tensor([[1.0], [4.0]]), torch.tensor([[3.0], [1.0]])).tolist() == [4.0, 9.0]
    far = torch.tensor([[60.0, -60.0]])
    assert float(jensen_shannon(far, -far)) == pytest.approx(math.log(2), abs=1e-6)
    for one, two in (((2, 1), (2,)), ((2, 2), (2, 2))):
        with pytest.raises(ValueError, match=r"must be \[B, 1\]"):
            squared_difference(torch.zeros(one), torch.zeros(two))

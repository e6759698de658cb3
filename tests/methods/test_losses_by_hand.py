"""Losses worked out by hand: of given predictions, of smoothed labels, of contrasted vectors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.methods.supervised_contrastive import summary_vectors, supervised_contrastive
from regft_core.training.distances import jensen_shannon, kl, squared_difference
from tests.methods.harness import STILL, Bench, same

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


def test_divergences_at_their_edges() -> None:
    """Their values stand in the losses above, but for those of one direction."""
    assert kl(P, Q).tolist() == pytest.approx([P_Q] * 2, abs=1e-6)
    assert kl(Q, P).tolist() == pytest.approx([Q_P] * 2, abs=1e-6)
    far = torch.tensor([[60.0, -60.0]])
    assert float(jensen_shannon(far, -far)) == pytest.approx(math.log(2), abs=1e-6)
    for one, two in (((2, 1), (2,)), ((2, 2), (2, 2))):
        with pytest.raises(ValueError, match=r"must be \[B, 1\]"):
            squared_difference(torch.zeros(one), torch.zeros(two))


# ----------------------------------------------------------------------------------------------------- label smoothing


def smoothed(logits: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
    """The loss of these logits, as a step computes it."""
    bench = Bench([("label_smoothing", {"smoothing": smoothing})], labels=logits.shape[1])
    return bench.step().task_loss(logits, labels)


@pytest.mark.parametrize("smoothing", [0.05, 0.1, 0.5])
def test_the_loss_is_that_against_the_mixed_targets(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 5, generator=generator, requires_grad=True)
    labels = torch.randint(5, (8,), generator=generator)
    targets = (1 - smoothing) * torch.nn.functional.one_hot(labels, 5) + smoothing / 5
    expected = -(targets * logits.log_softmax(-1)).sum(-1).mean()
    ours = smoothed(logits, labels, smoothing)
    assert torch.allclose(ours, expected, atol=1e-6)
    assert torch.allclose(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, expected)), atol=1e-6)


# ---------------------------------------------------------------------------------------------- supervised contrastive


def by_hand(vectors: Tensor, labels: list[int], temperature: float) -> list[float]:
    """The formula of the docstring, row by row."""
    unit = [[float(x) / math.sqrt(sum(float(y) ** 2 for y in row)) for x in row] for row in vectors]
    found = []
    for i, own in enumerate(unit):
        others = [k for k in range(len(unit)) if k != i]
        raised = {k: math.exp(sum(a * b for a, b in zip(own, unit[k], strict=True)) / temperature) for k in others}
        positives = [k for k in others if labels[k] == labels[i]]
        terms = [-math.log(raised[k] / sum(raised.values())) for k in positives]
        found.append(sum(terms) / len(terms) if terms else 0.0)
    return found


def test_it_is_the_formula_and_blind_to_lengths() -> None:
    vectors = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 0, 3])
    found = supervised_contrastive(vectors, labels, 0.3)
    assert found.tolist() == pytest.approx(by_hand(vectors.detach(), labels.tolist(), 0.3), abs=1e-5)
    (gradient,) = torch.autograd.grad(found.sum(), vectors)
    assert torch.allclose((gradient * vectors).sum(-1), torch.zeros(7), atol=1e-5)


@pytest.mark.parametrize("labels", [[0], [0, 1]])
def test_without_a_positive_loss_and_gradient_are_zero(labels: list[int]) -> None:
    vectors = torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    found = supervised_contrastive(vectors, torch.tensor(labels), 0.3)
    assert not found.any()
    assert not torch.autograd.grad(found.sum(), vectors)[0].any()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_of_a_step_is_the_mixture(reduction: str) -> None:
    bench = Bench([("supervised_contrastive", {"weight": 0.7, "reduction": reduction})], labels=3)
    step = bench.step()
    total = float(bench.stack.backward(step))
    plain = bench.step()
    logits, hidden = plain.forward(hidden=True)
    each = by_hand(hidden[:, 0].detach(), plain.batch.labels.tolist(), 0.3)  # [CLS]
    scl = sum(each) / (len(each) if reduction == "mean" else 1)
    ce = float(torch.nn.functional.cross_entropy(logits, plain.batch.labels).detach())
    assert total == pytest.approx(0.3 * ce + 0.7 * scl, abs=1e-5)


@pytest.mark.parametrize(
    ("architecture", "form"),
    [
        ("bert", {"pooling": "cls"}),
        ("bert", {"pooling": "mean"}),
        ("xlnet", {"pooling": "cls"}),
        ("bart", {"pooling": "cls"}),
        ("bert", {"pooling": "mean", "separately": True}),
        ("bert", {"pooling": "mean_last_four"}),
    ],
)
def test_the_vectors_are_what_the_head_reads(architecture: str, form: dict[str, Any]) -> None:
    """Of a pooled classifier: put through its linear they are the logits."""
    bench = Bench([("supervised_contrastive", {})], architecture=architecture, dropout=STILL, **form)
    step, read = bench.step(), list[Tensor]()
    bench.model.classifier.register_forward_pre_hook(lambda _, args: read.append(args[0].detach()))
    total = float(bench.stack.backward(step))
    each = by_hand(read[0], step.batch.labels.tolist(), 0.3)
    ce = float(torch.nn.functional.cross_entropy(bench.model.classifier(read[0]), step.batch.labels).detach())
    assert total == pytest.approx(0.1 * ce + 0.9 * sum(each) / len(each), abs=1e-5)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "deberta", "bart", "xlnet"])
def test_with_the_familys_own_head_they_are_its_summary_token(architecture: str) -> None:
    """The logits depend on no other last hidden state."""
    bench = Bench(architecture=architecture, dropout=STILL)
    step = bench.step()
    logits, hidden = step.forward(hidden=True)
    hidden.retain_grad()
    logits.sum().backward()
    read = summary_vectors(bench.model, hidden.grad, step.batch.attention_mask)
    assert torch.allclose(read.norm(dim=-1), hidden.grad.norm(dim=(1, 2)))
    assert (read.norm(dim=-1) > 0).all()


def test_permuted_labels_change_the_positives_and_not_the_cross_entropy() -> None:
    losses = []
    for labels in ("own", "permuted"):
        bench = Bench([("supervised_contrastive", {"labels": labels, "weight": 0.5})], labels=3, rows=24)
        for index in range(4):
            bench.stack.backward(bench.step(index))
        losses.append(bench.trainee.raw("classifier.weight").grad.clone())
    assert torch.allclose(*losses)  # the head's gradient is that of cross-entropy
    options = {"labels": "permuted"}
    first = Bench([("supervised_contrastive", options)], labels=3).train()
    assert same(first, Bench([("supervised_contrastive", options)], labels=3).train())
    assert not same(first, Bench([("supervised_contrastive", {})], labels=3).train())

"""The supervised contrastive loss against numbers worked out by hand, and what it is added to."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.methods.supervised_contrastive import (
    head_vectors,
    supervised_contrastive,
)
from regft_core.schema import DropoutConfig
from tests.methods.harness import TRAINING, Bench, same

STILL = DropoutConfig(hidden=0.0, attention=0.0)


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


def test_worked_numbers() -> None:
    # Cosines: 1 between the first two, 0 and 0 to the third; lengths do not count.
    vectors = torch.tensor([[2.0, 0.0], [5.0, 0.0], [0.0, 3.0]])
    pair = math.log(1 + math.exp(-2.0))  # -log(e^2 / (e^2 + e^0)) at temperature 0.5
    found = supervised_contrastive(vectors, torch.tensor([0, 0, 1]), 0.5)
    assert found.tolist() == pytest.approx([pair, pair, 0.0])
    # The positive of the first is now at cosine 0, beside a negative at cosine 1.
    found = supervised_contrastive(vectors, torch.tensor([0, 1, 0]), 0.5)
    assert found.tolist() == pytest.approx([2 + pair, 0.0, math.log(2)])


def test_it_is_the_formula_and_its_gradient_is_finite() -> None:
    vectors = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 0, 3])
    found = supervised_contrastive(vectors, labels, 0.3)
    assert found.tolist() == pytest.approx(by_hand(vectors.detach(), labels.tolist(), 0.3), abs=1e-5)
    (gradient,) = torch.autograd.grad(found.sum(), vectors)
    assert gradient.isfinite().all()
    # A step along a row's own direction changes its length only.
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
    assert (step.forward_passes, step.backward_passes) == (1.0, 1.0)


def test_the_head_learns_from_cross_entropy_alone() -> None:
    found = []
    for listed in ([("supervised_contrastive", {"weight": 0.75})], []):
        bench = Bench(listed)  # type: ignore[arg-type]
        bench.stack.backward(bench.step())
        found.append(bench.trainee.raw("classifier.weight").grad)
    assert torch.allclose(found[0], 0.25 * found[1], atol=1e-7)


@pytest.mark.parametrize(
    ("architecture", "form"),
    [
        ("bert", {"pooling": "cls"}),
        ("bert", {"pooling": "mean"}),
        ("xlnet", {"pooling": "cls"}),
        ("bart", {"pooling": "cls"}),
        ("bert", {"pooling": "mean", "separately": True}),
    ],
)
def test_the_vectors_are_what_the_head_reads(architecture: str, form: dict[str, Any]) -> None:
    """Of a pooled classifier: put through its linear they are the logits."""
    bench = Bench([("supervised_contrastive", {})], architecture=architecture, dropout=STILL, **form)
    step = bench.step()
    logits, hidden = step.forward(hidden=True)
    vectors = head_vectors(bench.model, hidden, step.batch.attention_mask)
    assert torch.allclose(bench.model.classifier(vectors), logits, atol=1e-6)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "deberta", "bart", "xlnet"])
def test_with_the_familys_own_head_they_are_its_summary_token(architecture: str) -> None:
    """The logits depend on no other last hidden state."""
    bench = Bench(architecture=architecture, dropout=STILL)
    step = bench.step()
    logits, hidden = step.forward(hidden=True)
    hidden.retain_grad()
    logits.sum().backward()
    read = head_vectors(bench.model, hidden.grad, step.batch.attention_mask)
    assert torch.allclose(read.norm(dim=-1), hidden.grad.norm(dim=(1, 2)))
    assert (read.norm(dim=-1) > 0).all()


def test_batches_that_are_accumulated_are_contrasted_one_by_one() -> None:
    bench = Bench([("supervised_contrastive", {})], dropout=STILL)
    steps = [bench.step(index, share=0.5) for index in range(2)]
    for step in steps:
        bench.stack.backward(step)
    found = bench.trainee.raw("bert.encoder.layer.0.output.dense.weight").grad.clone()
    apart = []
    for index in range(2):
        bench.model.zero_grad(set_to_none=True)
        bench.stack.backward(bench.step(index))
        apart.append(bench.trainee.raw("bert.encoder.layer.0.output.dense.weight").grad.clone())
    assert torch.allclose(found, (apart[0] + apart[1]) / 2, atol=1e-6)


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


def test_it_draws_classes_together() -> None:
    """The loss ends far below that of as many steps with permuted labels."""

    def closeness(listed: list[Any]) -> float:
        protocol = TRAINING.model_copy(update={"epochs": 60, "batch_size": 12})
        bench = Bench(listed, dropout=STILL, training=protocol)
        bench.train()
        bench.model.eval()
        with torch.no_grad():
            batch = bench.stream.collate(range(12))
            hidden = bench.model.bert(**batch.model_inputs())[0]
            vectors = head_vectors(bench.model, hidden, batch.attention_mask)
        return float(supervised_contrastive(vectors, batch.labels, 0.3).mean())

    permuted = closeness([("supervised_contrastive", {"labels": "permuted"})])
    assert closeness([("supervised_contrastive", {})]) < permuted - 0.3

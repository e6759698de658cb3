"""Losses worked out by hand: of given predictions, of contrasted vectors, and the pairs that SetFit draws."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.errors import RunFailed
from regft_core.methods.contrastive import Partners, batch_loss, pair_loss
from regft_core.methods.supervised_contrastive import summary_vectors, supervised_contrastive
from regft_core.training.distances import jensen_shannon, kl, squared_difference
from tests.errors import raises_code
from tests.methods.harness import STILL, Bench, calls_of, only, same

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


# ---------------------------------------------------------------------------------------------------------- contrastive


bench = only("contrastive", phase="contrastive")


def test_the_loss_of_three_pairs_by_hand() -> None:
    first = torch.tensor([[3.0, 4.0], [1.0, 0.0], [1.0, 1.0]])
    second = torch.tensor([[4.0, 3.0], [0.0, 2.0], [-2.0, -2.0]])
    # Cosines 24/25, 0 and -1.
    targets = torch.tensor([1.0, 1.0, 0.0])
    assert pair_loss(first, second, targets).item() == pytest.approx(((1 / 25) ** 2 + 1 + 1) / 3, abs=1e-6)


def test_partners_are_of_the_right_class_and_each_as_likely() -> None:
    rows, labels = [10, 11, 12, 13, 14, 15], [0, 0, 0, 1, 1, 2]
    partners = Partners(rows, labels, "labels")
    draws = [(i + 0.5) / 1200 for i in range(1200)]
    assert Counter(partners.positive(10, d) for d in draws) == {11: 600, 12: 600}
    assert Counter(partners.positive(12, d) for d in draws) == {10: 600, 11: 600}
    assert Counter(partners.negative(13, d) for d in draws) == {10: 300, 11: 300, 12: 300, 15: 300}
    assert partners.positive(15, 0.9) == 15  # alone in its class
    assert partners.negative(15, 1 - 2**-53) == 14


def test_random_partners_are_any_other_row() -> None:
    partners = Partners([0, 1, 2, 3], [0, 0, 1, 1], "random")
    draws = [(i + 0.5) / 900 for i in range(900)]
    assert Counter(partners.positive(1, d) for d in draws) == {0: 300, 2: 300, 3: 300}
    assert Counter(partners.negative(3, d) for d in draws) == {0: 300, 1: 300, 2: 300}


def test_one_class_has_no_negatives() -> None:
    with raises_code(RunFailed, "one-class", "all 2"):
        Partners([0, 1], [1, 1], "labels")


#: Weights of the layers of a tiny encoder, which has two.
LAYERS = (0.5, 1.0)


@pytest.mark.parametrize("pooling", ["head", "mean", "cls", "mean_last_four"])
@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_a_step_is_the_loss_of_its_pairs_encoded_one_by_one(architecture: str, pooling: str) -> None:
    run = bench(architecture=architecture, dropout=STILL, pooling=pooling)
    if pooling == "mean_last_four":
        run.model.parts = LAYERS
        run.method.prepare(run.trainee, {})
    step = run.step()
    anchors = step.batch.indices.tolist()
    own = run.method
    draws = torch.rand(2, 4, generator=step.generator("contrastive.partners"), dtype=torch.float64).tolist()
    labels = run.encoded.labels
    total = 0.0
    for anchor, one, other in zip(anchors, *draws, strict=True):
        positive, negative = own._partners.positive(anchor, one), own._partners.negative(anchor, other)
        assert labels[positive] == labels[anchor] != labels[negative]
        u, v, w = (embed(run, row, pooling) for row in (anchor, positive, negative))
        total += (1 - float(u @ v) / float(u.norm() * v.norm())) ** 2 + (float(u @ w) / float(u.norm() * w.norm())) ** 2
    assert run.stack.backward(step).item() == pytest.approx(total / 8, abs=1e-5)


def test_all_pairs_of_a_batch_by_hand() -> None:
    vectors = torch.tensor([[3.0, 4.0], [4.0, 3.0], [0.0, 2.0]])
    # Cosines 24/25 (one class), 4/5 and 3/5; each kind of pair has half of the loss.
    by_hand = ((1 / 25) ** 2 + (0.8**2 + 0.6**2) / 2) / 2
    assert batch_loss(vectors, torch.tensor([0, 0, 1])).item() == pytest.approx(by_hand, abs=1e-6)
    # Pairs of one kind alone, and none at all.
    assert batch_loss(vectors, torch.tensor([2, 2, 2])).item() == pytest.approx(
        (0.04**2 + 0.2**2 + 0.4**2) / 3, abs=1e-6
    )
    assert batch_loss(vectors[:1], torch.tensor([0])).item() == 0.0


def test_a_step_on_all_pairs_encodes_every_row_once() -> None:
    run = bench({"pairs": "batch"}, dropout=STILL, pooling="mean")
    step = run.step()
    rows = step.batch.indices.tolist()
    vectors = torch.stack([embed(run, row, "mean") for row in rows])
    expected = batch_loss(vectors, torch.tensor([run.encoded.labels[row] for row in rows]))
    assert run.stack.backward(step).item() == pytest.approx(expected.item(), abs=1e-5)
    assert (step.forward_passes, step.backward_passes) == (1.0, 1.0)


def test_random_pairs_of_a_batch_follow_other_labels() -> None:
    random = {"pairs": "batch", "partners": "random"}
    first = bench(random).train()
    assert same(first, bench(random).train())
    assert not same(first, bench({"pairs": "batch"}).train())


def embed(run: Bench, row: int, pooling: str) -> torch.Tensor:
    """The vector of one unpadded row."""
    with torch.no_grad():
        inputs = run.stream.collate([row]).model_inputs()
        outputs = run.model.base_model(**inputs, output_hidden_states=True)
    if pooling == "mean_last_four":
        states = (torch.nn.functional.normalize(s[0].mean(0), dim=0) for s in outputs.hidden_states[-len(LAYERS) :])
        return torch.cat([weight * state for weight, state in zip(LAYERS, states, strict=True)])
    tokens: torch.Tensor = outputs[0][0]
    return tokens[-1 if run.trainee.sites.architecture == "xlnet" else 0] if pooling == "cls" else tokens.mean(0)


def test_an_epoch_gives_every_row_one_pair_of_each_kind() -> None:
    run = bench(rows=12)
    seen, loop = calls_of(run.method._stream, "collate", list), run.loop()
    loop.train()
    # The loop's own batches have 4 rows, those of anchors and partners 12.
    pairs = [rows for rows in seen if len(rows) == 12]
    assert len(pairs) == loop.total == 2 * 3
    assert Counter(row for rows in pairs for row in rows[:4]) == dict.fromkeys(range(12), 2)

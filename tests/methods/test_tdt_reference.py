"""TDT against the worked numbers and invariants of its paper."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from regft_core.contract.laws import widened
from regft_core.methods.tdt import Tdt, TdtConfig, confidence_penalty, ranking_loss
from regft_core.training.trainee import Pass
from tests.methods.harness import MAKES, STILL, Bench

CLEAN, DISTILLED, NEGATIVE = (torch.tensor([[x, 0.0]]) for x in (1.0, 0.5, -1.0))


def still(architecture: str = "bert", **options: Any) -> tuple[Bench, Tdt]:
    """A bench without any dropout, and its TDT."""
    names = ("pair", "kind", "keyword_segment", "rows", "pooling", "separately")
    setting = {name: options.pop(name) for name in names if name in options}
    bench = Bench([("tdt", options)], architecture=architecture, dropout=STILL, **setting)
    return bench, bench.method


def force(regulariser: Tdt, bias: float) -> None:
    with torch.no_grad():
        regulariser.unit.weight.zero_()
        regulariser.unit.bias.fill_(bias)


def captured(bench: Bench, layer: int = 0) -> list[torch.Tensor]:
    """What the layer receives after TDT."""
    seen: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor, site: Any) -> torch.Tensor:
        seen.append(tensor.detach())
        return tensor

    bench.trainee.hooks.on_layer_input(keep, [layer])
    return seen


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"variant": "paper"}, 1.291354),
        ({"variant": "paper", "divergence": "printed"}, 1.308435),
        ({"variant": "released"}, 1.829425),
    ],
)
def test_ranking_loss_of_the_worked_example(options: dict[str, Any], expected: float) -> None:
    for margin, wanted in ((2.0, expected), (0.0, 0.0)):
        loss = ranking_loss(CLEAN, DISTILLED, NEGATIVE, TdtConfig(margin=margin, **options), "classification")
        assert float(loss) == pytest.approx(wanted, abs=1e-6)


def test_ranking_loss_of_values() -> None:
    predictions = [torch.tensor([[1.0], [2.0]]), torch.tensor([[1.5], [2.0]]), torch.tensor([[1.0], [5.0]])]
    loss = ranking_loss(*predictions, TdtConfig(margin=2.0), "regression")
    # Example 1: 2 + 0.25 - 0 - 0.25 = 2; example 2: 2 + 0 - 9 - 9 < 0.
    assert float(loss) == pytest.approx(1.0)


def test_paper_takes_the_hinge_per_example_and_released_on_the_mean() -> None:
    clean, distilled = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([[2.0, 0.0], [2.0, 0.0]])
    negative = torch.tensor([[0.0, 0.0], [-9.0, 0.0]])  # the first triple violates, the second more than makes up
    logits, paper = (clean, distilled, negative), TdtConfig(margin=1.0)
    each = [float(ranking_loss(*(z[i : i + 1] for z in logits), paper, "classification")) for i in range(2)]
    assert each[0] > 0
    assert each[1] == 0
    assert float(ranking_loss(*logits, paper, "classification")) == pytest.approx(sum(each) / 2)
    assert float(ranking_loss(*logits, TdtConfig(variant="released", margin=1.0), "classification")) == 0


def test_penalty_counts_real_tokens_only() -> None:
    confidence = torch.tensor([[0.5, 0.5, 0.5, 0.5, 0.9, 0.1]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    assert float(confidence_penalty(confidence, mask)) == pytest.approx(1.0, abs=1e-6)
    zero = torch.zeros(1, 6, requires_grad=True)
    confidence_penalty(zero, mask).backward()
    assert zero.grad.isfinite().all()


def mean_of(clean: torch.Tensor, mask: torch.Tensor, variant: str) -> torch.Tensor:
    """Mu0: the mean over real tokens, or over all of them."""
    weights = torch.ones_like(mask) if variant == "released" else mask
    return (clean * weights.unsqueeze(-1)).sum(1, keepdim=True) / weights.sum(1).view(-1, 1, 1)


@pytest.mark.parametrize(("architecture", "variant"), [*((name, "paper") for name in MAKES), ("bert", "released")])
@pytest.mark.parametrize("full", [True, False])
def test_full_confidence_leaves_the_distilled_view_clean_and_none_the_negative(
    architecture: str, variant: str, full: bool
) -> None:
    """The other view is empty, or mu0 everywhere."""
    bench, tdt = still(architecture, variant=variant)
    force(tdt, 50.0 if full else -200.0)
    inputs = captured(bench) if architecture != "deberta-v2" else []
    step = bench.step()
    clean, distilled, negative = tdt.predictions(step)
    same, other = (distilled, negative) if full else (negative, distilled)
    # Rows of one product can differ in the last bit by their place in the batch.
    assert torch.allclose(clean, same, atol=1e-6)
    assert not torch.allclose(clean, other, atol=1e-4)
    if inputs:
        batch_dim = bench.trainee.sites.layers[0].batch_dim
        views = [v.transpose(0, 1) if batch_dim else v for v in inputs[0].chunk(3, dim=batch_dim)]
        mean = mean_of(views[0], step.batch.attention_mask.float(), variant)
        expected = torch.zeros_like(views[2]) if full else mean.expand_as(views[1])
        assert torch.allclose(views[2 if full else 1], expected, atol=1e-5)
    plain = Bench(architecture=architecture, dropout=STILL)
    assert torch.allclose(clean, plain.step().forward(), atol=1e-5)


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2"])
def test_more_padding_changes_nothing_unless_mu0_counts_it(architecture: str) -> None:
    for options, same_distilled in (({}, True), ({"variant": "released"}, False), ({"mu0_mask_padding": False}, False)):
        bench, tdt = still(architecture, **options)
        step = bench.step()
        before = [logits.detach() for logits in tdt.predictions(step)]
        step.batch = widened(step.batch, 10, bench.tokenizer.pad_token_id)
        after = [logits.detach() for logits in tdt.predictions(step)]
        differences = [float((a - b).abs().max()) for a, b in zip(before, after, strict=True)]
        assert differences[0] < 1e-5
        assert differences[2] < 1e-5
        assert (differences[1] < 1e-5) == same_distilled


def test_views_share_the_dropout_mask_of_the_embedding_only() -> None:
    bench = Bench([("tdt", {})])
    tdt = bench.stack.regularisers[0]
    force(tdt, 50.0)
    inputs, deeper = captured(bench), captured(bench, 1)
    tdt.predictions(bench.step())
    clean, distilled, _ = inputs[0].chunk(3)
    assert float((clean == 0).float().mean()) > 0.05  # dropped
    assert torch.equal(clean, distilled)
    clean, distilled, _ = deeper[0].chunk(3)
    assert not torch.equal(clean, distilled)


@pytest.mark.parametrize(("segment", "variant"), [("text", "paper"), ("text_pair", "paper"), ("text", "released")])
def test_keywords_stay_untouched(segment: str, variant: str) -> None:
    bench, tdt = still(pair=True, keyword_segment=segment, variant=variant)
    inputs = captured(bench)
    step = bench.step()
    tdt.predictions(step)
    clean, distilled, negative = inputs[0].chunk(3)
    keywords = step.batch.segment == (0 if segment == "text" else 1)
    others = step.batch.segment == (1 if segment == "text" else 0)
    assert (~torch.isclose(negative, clean).all(-1))[others].all()
    assert torch.equal(negative[keywords], clean[keywords])
    assert torch.equal(distilled[keywords], clean[keywords])
    assert not tdt.seen[0][1][keywords].any()  # they count neither in the penalty nor in the mean


@pytest.mark.parametrize("perturbation", ["zero", "gaussian"])
def test_other_vectors_for_mu0(perturbation: str) -> None:
    bench, tdt = still(perturbation=perturbation)
    force(tdt, -200.0)
    inputs = captured(bench)
    tdt.predictions(bench.step())
    distilled = inputs[0].chunk(3)[1]
    assert torch.equal(distilled, distilled[:, :1].expand_as(distilled))
    if perturbation == "zero":
        assert not distilled.any()
    else:
        assert 0.5 < float(distilled[:, 0].std()) < 1.5
        assert not torch.equal(distilled[0], distilled[1])


@pytest.mark.parametrize("architecture", ["bert", "bart", "xlnet"])
def test_hard_mode_keeps_tokens_or_puts_the_embedding_of_mask_in_their_place(architecture: str) -> None:
    bench, tdt = still(architecture, mode="hard")
    inputs = captured(bench)
    step = bench.step()
    tdt.predictions(step)
    batch_dim = bench.trainee.sites.layers[0].batch_dim
    views = [v.transpose(0, 1) if batch_dim else v for v in inputs[0].chunk(3, dim=batch_dim)]
    clean, distilled, negative = views
    gates = tdt.seen[0][0].detach()
    assert set(gates.unique().tolist()) == {0.0, 1.0}
    inside = step.batch.segment >= 0
    chosen, dropped = inside & (gates == 1), inside & (gates == 0)
    assert torch.allclose(distilled[chosen], clean[chosen])
    assert torch.allclose(negative[dropped], clean[dropped])
    assert not negative[chosen].any()
    # Reference: the embedding output of the same rows, every token of them masked.
    masked = step.batch.input_ids.masked_fill(inside, bench.tokenizer.mask_token_id)
    inputs.clear()
    step.forward(batch=dataclasses.replace(step.batch, input_ids=masked))
    reference = inputs[0].transpose(0, 1) if batch_dim else inputs[0]
    assert torch.allclose(distilled[dropped], reference[dropped], atol=1e-6)
    tdt.backward(step)
    assert float(tdt.unit.weight.grad.abs().sum()) > 0


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_hard_mode_keeps_a_token_as_often_as_the_softmax_says(temperature: float) -> None:
    """The largest of two logits with Gumbel noise is a draw from their softmax, whatever the temperature."""
    bench, tdt = still(mode="hard", temperature=temperature)
    with torch.no_grad():
        tdt.unit.weight.zero_()
        tdt.unit.bias.copy_(torch.tensor([0.4, -0.8]))
    site, rows, batch = bench.trainee.sites.layers[0], 5000, bench.step().batch
    bench.trainee.current = Pass("clean", (), (0, 0, 0), batch.attention_mask, batch.segment)
    gates = tdt.confidence(torch.zeros(rows, 4, 32), site).detach()
    share = 1 / (1 + math.exp(1.2))  # the second of the two classes is "keep"
    spread = (share * (1 - share) / gates.numel()) ** 0.5
    assert set(gates.round(decimals=5).unique().tolist()) == {0.0, 1.0}
    assert float(gates.mean()) == pytest.approx(share, abs=4 * spread)


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_shuffling_keeps_the_values_of_each_input_over_its_real_tokens(architecture: str) -> None:
    bench, tdt = still(architecture, confidence="shuffled")
    learned, original = [], tdt.confidence
    tdt.confidence = lambda *given: (learned.append(original(*given)), learned[-1])[1]  # type: ignore[method-assign]
    tdt.predictions(bench.step())
    shuffled, mask = tdt.seen[0]
    real, before = mask.bool(), learned[0].squeeze(-1)
    assert not real.all()  # the batch has padding, on the left for XLNet
    assert torch.equal(shuffled[~real], before[~real])
    for values, moved, at in zip(before, shuffled, real, strict=True):
        assert torch.equal(values[at].sort().values, moved[at].sort().values)
        assert not torch.equal(values[at], moved[at])


def test_every_order_is_equally_likely_and_drawn_anew_in_every_step() -> None:
    bench, tdt = still(confidence="shuffled")
    batch, site = bench.step().batch, bench.trainee.sites.layers[0]
    values = torch.arange(3.0).reshape(1, 3, 1).expand(4000, 3, 1)

    def draw(index: int) -> torch.Tensor:
        bench.trainee.current = Pass("clean", (), (index, 0, 0), batch.attention_mask, batch.segment)
        return tdt.shuffled(values, torch.ones(4000, 3, dtype=torch.bool), site).squeeze(-1)

    first = draw(0)
    assert torch.equal(first, draw(0))
    assert not torch.equal(first, draw(1))
    orders, counts = first.unique(dim=0, return_counts=True)
    assert orders.shape[0] == 6
    assert counts.tolist() == pytest.approx([4000 / 6] * 6, abs=5 * (4000 * 5 / 36) ** 0.5)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"w_distill": 0.7, "w_rank": 0.3, "gamma": 0.2}, "classification"),
        ({"w_distill": 0.7, "w_rank": 0.0}, "classification"),
        ({"w_distill": 0.0, "w_rank": 0.3}, "classification"),
        ({"w_distill": 0.7, "w_rank": 0.3}, "regression"),
    ],
)
def test_the_loss_of_a_step_is_the_weighted_sum(options: dict[str, Any], kind: str) -> None:
    """Equation 7, of views that add up: distilled + negative = clean + (1 - c) mu0."""
    bench, tdt = still(kind=kind, **options)
    inputs, step = captured(bench), bench.step()
    clean, distilled, *negative = tdt.predictions(step)
    expected = step.task_loss(clean) + options["w_distill"] * step.task_loss(distilled)
    ((confidence, mask),) = tdt.seen
    expected = expected + options["w_distill"] * options.get("gamma", 0.0) * confidence_penalty(confidence, mask)
    if negative:
        embedding, positive, rest = inputs[0].chunk(3)
        mean = mean_of(embedding, step.batch.attention_mask.float(), "paper")
        assert (positive + rest - embedding - (1 - confidence.unsqueeze(-1)) * mean).abs().max() < 1e-6
        assert 0.2 < float(confidence.detach().mean()) < 0.8
        expected = expected + options["w_rank"] * ranking_loss(clean, distilled, *negative, tdt.options, kind)
    assert float(tdt.backward(step)) == pytest.approx(float(expected.detach()), rel=1e-6)

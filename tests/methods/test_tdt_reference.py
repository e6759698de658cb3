"""TDT against the worked numbers and invariants of its paper."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from regft_core.data.batches import Batch
from regft_core.methods.tdt import Tdt, TdtConfig, confidence_penalty, divergence, ranking_loss
from regft_core.schema import DropoutConfig
from tests.methods.harness import MAKES, STILL, Bench

CLEAN, DISTILLED, NEGATIVE = (torch.tensor([[x, 0.0]]) for x in (1.0, 0.5, -1.0))


def still(architecture: str = "bert", **options: Any) -> tuple[Bench, Tdt]:
    """A bench without any dropout, and its TDT."""
    names = ("pair", "kind", "keyword_segment", "rows", "pooling", "separately")
    setting = {name: options.pop(name) for name in names if name in options}
    # XLNet has one dropout field for both kinds.
    dropout = DropoutConfig(hidden=0.0, attention="keep") if architecture == "xlnet" else STILL
    bench = Bench([("tdt", options)], architecture=architecture, dropout=dropout, **setting)
    if architecture == "xlnet":
        bench.model.sequence_summary.last_dropout.p = 0.0
    regulariser = bench.stack.regularisers[0]
    assert isinstance(regulariser, Tdt)
    return bench, regulariser


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


def padded(batch: Batch, columns: int, pad_id: int) -> Batch:
    """The batch with ``columns`` more columns of padding on the right."""
    fill = {"input_ids": pad_id, "attention_mask": 0, "token_type_ids": 0, "special_mask": 1, "segment": -1}
    changes = {}
    for name, value in fill.items():
        tensor = getattr(batch, name)
        if tensor is not None:
            changes[name] = torch.nn.functional.pad(tensor, (0, columns), value=value)
    return dataclasses.replace(batch, **changes)


# ------------------------------------------------------------------------------ worked numbers


def test_divergences_of_the_worked_example() -> None:
    assert float(divergence(DISTILLED, CLEAN, "classification")) == pytest.approx(0.026345, abs=1e-6)
    assert float(divergence(NEGATIVE, CLEAN, "classification")) == pytest.approx(0.462117, abs=1e-6)
    assert float(divergence(NEGATIVE, DISTILLED, "classification")) == pytest.approx(0.272874, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"variant": "paper"}, 1.291354),
        ({"variant": "paper", "divergence": "printed"}, 1.308435),
        ({"variant": "released"}, 1.829425),
    ],
)
def test_ranking_loss_of_the_worked_example(options: dict[str, Any], expected: float) -> None:
    at_two, at_zero = TdtConfig(margin=2.0, **options), TdtConfig(margin=0.0, **options)
    loss = ranking_loss(CLEAN, DISTILLED, NEGATIVE, at_two, "classification")
    assert float(loss) == pytest.approx(expected, abs=1e-6)
    assert float(ranking_loss(CLEAN, DISTILLED, NEGATIVE, at_zero, "classification")) == 0


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
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


# ------------------------------------------------------------------------------------- the views


@pytest.mark.parametrize("architecture", MAKES)
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_full_confidence_leaves_the_distilled_view_clean_and_empties_the_negative(
    architecture: str, variant: str
) -> None:
    bench, tdt = still(architecture, variant=variant)
    force(tdt, 50.0)
    inputs = captured(bench) if architecture != "deberta-v2" else []
    step = bench.step()
    clean, distilled, negative = tdt.predictions(step)
    # Rows of one product can differ in the last bit by their place in the batch.
    assert torch.allclose(clean, distilled, atol=1e-6)
    assert not torch.allclose(clean, negative, atol=1e-4)
    if inputs:
        views = inputs[0].chunk(3, dim=bench.trainee.sites.layers[0].batch_dim)
        assert torch.equal(views[0], views[1])
        assert not views[2].any()
    alike = step.batch.attention_mask.sum(1) == step.batch.attention_mask.sum(1)[0]
    if architecture != "xlnet":  # XLNet's segments still tell inputs apart
        assert torch.allclose(negative[alike], negative[:1].expand_as(negative[alike]), atol=1e-5)
    plain = Bench(architecture=architecture, dropout=bench.training.dropout)
    if architecture == "xlnet":
        plain.model.sequence_summary.last_dropout.p = 0.0
    assert torch.allclose(clean, plain.step().forward(), atol=1e-5)


@pytest.mark.parametrize("architecture", MAKES)
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_no_confidence_moves_the_distilled_view_to_mu0_and_leaves_the_negative_clean(
    architecture: str, variant: str
) -> None:
    bench, tdt = still(architecture, variant=variant)
    force(tdt, -200.0)
    inputs = captured(bench) if architecture != "deberta-v2" else []
    step = bench.step()
    clean, distilled, negative = tdt.predictions(step)
    assert torch.allclose(clean, negative, atol=1e-6)
    assert not torch.allclose(clean, distilled, atol=1e-4)
    if inputs:
        batch_dim = bench.trainee.sites.layers[0].batch_dim
        views = [v.transpose(0, 1) if batch_dim else v for v in inputs[0].chunk(3, dim=batch_dim)]
        mask = step.batch.attention_mask.unsqueeze(-1).float()
        mask = torch.ones_like(mask) if variant == "released" else mask
        mean = (views[0] * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
        assert torch.allclose(views[1], mean.expand_as(views[1]), atol=1e-5)


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_the_views_add_up(variant: str) -> None:
    bench, tdt = still(variant=variant)
    inputs = captured(bench)
    step = bench.step()
    tdt.predictions(step)
    embedding, positive, negative = inputs[0].chunk(3)
    confidence = tdt.seen[0][0].unsqueeze(-1)
    mask = step.batch.attention_mask.unsqueeze(-1).float()
    mask = torch.ones_like(mask) if variant == "released" else mask
    mean = (embedding * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    assert (positive + negative - embedding - (1 - confidence) * mean).abs().max() < 1e-6
    assert 0.2 < float(confidence.detach().mean()) < 0.8


@pytest.mark.parametrize("architecture", ["bert", "roberta", "deberta-v2"])
def test_more_padding_changes_nothing_unless_mu0_counts_it(architecture: str) -> None:
    for options, same_distilled in (({}, True), ({"variant": "released"}, False), ({"mu0_mask_padding": False}, False)):
        bench, tdt = still(architecture, **options)
        step = bench.step()
        before = [logits.detach() for logits in tdt.predictions(step)]
        step.batch = padded(step.batch, 10, bench.tokenizer.pad_token_id)
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


@pytest.mark.parametrize("segment", ["text", "text_pair"])
def test_keywords_stay_untouched(segment: str) -> None:
    bench, tdt = still(pair=True, keyword_segment=segment)
    inputs = captured(bench)
    step = bench.step()
    tdt.predictions(step)
    clean, distilled, negative = inputs[0].chunk(3)
    kept = step.batch.segment == (0 if segment == "text" else 1)
    assert kept.any()
    assert torch.equal(distilled[kept], clean[kept])
    assert torch.equal(negative[kept], clean[kept])
    other = step.batch.segment == (1 if segment == "text" else 0)
    assert not torch.isclose(negative[other], clean[other]).all(-1).any()
    assert not tdt.seen[0][1][kept].any()  # they count neither in the penalty nor in the mean


def test_the_released_code_has_no_rule_for_keywords() -> None:
    bench, tdt = still(pair=True, keyword_segment="text", variant="released")
    inputs = captured(bench)
    step = bench.step()
    tdt.predictions(step)
    clean, _, negative = inputs[0].chunk(3)
    assert not torch.isclose(negative, clean).all(-1)[step.batch.segment == 0].any()


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
    inside = step.batch.special_mask == 0
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
    from regft_core.training.trainee import Pass

    bench, tdt = still(mode="hard", temperature=temperature)
    with torch.no_grad():
        tdt.unit.weight.zero_()
        tdt.unit.bias.copy_(torch.tensor([0.4, -0.8]))
    site, rows = bench.trainee.sites.layers[0], 5000
    bench.trainee.current = Pass("clean", (), (0, 0, 0), bench.step().batch.attention_mask)
    gates = tdt.confidence(torch.zeros(rows, 4, 32), site).detach()
    share = 1 / (1 + math.exp(1.2))  # the second of the two classes is "keep"
    spread = (share * (1 - share) / gates.numel()) ** 0.5
    assert set(gates.round(decimals=5).unique().tolist()) == {0.0, 1.0}
    assert float(gates.mean()) == pytest.approx(share, abs=4 * spread)


# -------------------------------------------------------------------------- shuffled confidence


def shuffled_and_learned(**options: Any) -> tuple[Bench, Tdt, list[torch.Tensor], torch.Tensor]:
    """A bench after one pass, its layer input by view, and the confidences before the shuffle."""
    bench, tdt = still(confidence="shuffled", **options)
    learned: list[torch.Tensor] = []
    original = tdt.confidence

    def keep(embedding: torch.Tensor, site: Any) -> torch.Tensor:
        learned.append(original(embedding, site))
        return learned[-1]

    tdt.confidence = keep  # type: ignore[method-assign]
    inputs = captured(bench)
    tdt.predictions(bench.step())
    return bench, tdt, list(inputs[0].chunk(3)), learned[0].squeeze(-1)


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_shuffling_keeps_the_values_of_each_input_over_its_real_tokens(architecture: str) -> None:
    _, tdt, _, learned = shuffled_and_learned(architecture=architecture)
    shuffled, mask = tdt.seen[0]
    real = mask.bool()
    assert not real.all()  # the batch has padding, on the left for XLNet
    assert torch.equal(shuffled[~real], learned[~real])
    for row, (before, after) in enumerate(zip(learned, shuffled, strict=True)):
        assert torch.equal(before[real[row]].sort().values, after[real[row]].sort().values)
        assert not torch.equal(before[real[row]], after[real[row]])


def test_every_order_is_equally_likely_and_drawn_anew_in_every_step() -> None:
    bench, tdt = still(confidence="shuffled")
    step, site = bench.step(), bench.trainee.sites.layers[0]
    values = torch.arange(3.0).reshape(1, 3, 1).expand(4000, 3, 1)
    movable = torch.ones(4000, 3, dtype=torch.bool)

    def draw(index: int) -> torch.Tensor:
        from regft_core.training.trainee import Pass

        bench.trainee.current = Pass("clean", (), (index, 0, 0), step.batch.attention_mask)
        return tdt.shuffled(values, movable, site).squeeze(-1)

    first, again, second = draw(0), draw(0), draw(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    orders, counts = first.unique(dim=0, return_counts=True)
    assert orders.shape[0] == 6
    assert counts.tolist() == pytest.approx([4000 / 6] * 6, abs=5 * (4000 * 5 / 36) ** 0.5)


# --------------------------------------------------------------------------------- the whole step


def test_without_the_ranking_loss_the_negative_pass_is_no_loss() -> None:
    """Two views instead of three, and the gradient of a ranking loss that weighs next to nothing."""
    gradients = []
    for weight in (0.0, 1e-20):
        bench, tdt = still(w_rank=weight)
        tdt.backward(bench.step())
        gradients.append({name: p.grad for name, p in bench.trainee.named_trainable() if p.grad is not None})
    one, other = gradients
    assert set(one) == set(other)
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


# ------------------------------------------------------------------------------------ refusals


def test_regression_uses_squares_of_matching_shapes() -> None:
    predictions = [torch.tensor([[1.0], [2.0]]), torch.tensor([[1.5], [2.0]]), torch.tensor([[1.0], [5.0]])]
    loss = ranking_loss(*predictions, TdtConfig(margin=2.0), "regression")
    # Example 1: 2 + 0.25 - 0 - 0.25 = 2; example 2: 2 + 0 - 9 - 9 < 0.
    assert float(loss) == pytest.approx(1.0)

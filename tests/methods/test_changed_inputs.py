"""Cutoff and manifold mixup, which cut and mix what is read, against computations by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.hooks.declare import MainPass
from regft_core.methods.cutoff import CUT, cut_features, cut_span, cut_tokens
from regft_core.methods.manifold_mixup import Draw, rows_of, with_partners
from regft_core.models.load import load_classifier
from tests.methods.harness import MAKES, STILL, Bench, calls_of, close, gradients


def still(architecture: str = "bert", **options: Any) -> Bench:
    more = {name: options.pop(name) for name in ("pair", "keyword_segment") if name in options}
    return Bench([("cutoff", options)], architecture=architecture, dropout=STILL, **more)


def mask_of(*lengths: int, width: int | None = None, left: bool = False) -> Tensor:
    width = width or max(lengths)
    rows = [[1] * length + [0] * (width - length) for length in lengths]
    return torch.tensor([row[::-1] if left else row for row in rows]).bool()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("left", [False, True])
def test_tokens_are_drawn_with_replacement_among_real_ones(left: bool) -> None:
    mask, hits, shared = mask_of(20, 9, 41, left=left), torch.zeros(3, 41), 0
    for seed in range(300):
        cut = cut_tokens(mask, mask, 0.1, generator(seed))
        assert not (cut & ~mask).any()
        per_row = cut.sum(1)
        assert (per_row <= torch.tensor([2, 0, 4])).all()
        assert (per_row[[0, 2]] >= 1).all()
        shared += int(per_row[2] < 4)
        hits += cut
    assert shared > 0  # the same position twice
    assert (hits[2] > 0).all()  # any position, also the first and the last
    frequency = hits[2] / 300
    assert frequency.max() < 0.2
    assert frequency.mean().item() == pytest.approx(1 - (1 - 1 / 41) ** 4, rel=0.1)


@pytest.mark.parametrize("left", [False, True])
def test_a_span_is_one_run_of_real_tokens(left: bool) -> None:
    mask, starts = mask_of(20, 9, 40, left=left), set()
    for seed in range(300):
        cut = cut_span(mask, mask, 0.1, generator(seed))
        assert cut.sum(1).tolist() == [2, 0, 4]
        assert not (cut & ~mask).any()
        columns = cut[2].nonzero().flatten().tolist()
        assert columns == list(range(columns[0], columns[0] + 4))
        starts.add(columns[0])
    assert {0, 35} <= starts <= set(range(36))


def test_features_are_dimensions_of_all_tokens() -> None:
    cut = cut_features(3, 40, 0.1, generator())
    assert cut.shape == (3, 1, 40)
    assert (cut.sum(-1) <= 4).all()
    assert not torch.equal(cut[0], cut[1])
    assert not cut_features(3, 40, 0.0, generator()).any()


def test_the_keyword_segment_stays() -> None:
    bench = still(pair=True, keyword_segment="text_pair", ratio=0.9)
    step = bench.step()
    positions = bench.method.positions(step)
    assert positions.any()
    assert not positions[step.batch.segment == 1].any()


def test_the_mask_whose_vector_answers_is_never_cut() -> None:
    bench = Bench([("cutoff", {}), ("verbaliser", {})], masked_lm=True)
    batch = bench.step().batch
    assert not bench.stack.adding[0].allowed(batch)[batch.input_ids == bench.trainee.mask_token("")].any()


@pytest.mark.parametrize("architecture", MAKES)
@pytest.mark.parametrize("pooling", ["cls", "mean", "head"])
def test_a_summary_token_that_is_all_the_head_reads_is_never_cut(architecture: str, pooling: str) -> None:
    bench = still(architecture)
    bench.trainee.model = load_classifier(
        bench.source, kind="classification", labels=["a", "b"], dropout=STILL, head_seed=1, pooling=pooling
    )
    batch = bench.step().batch
    real, rows = batch.attention_mask.bool(), range(len(batch))
    spared = real & ~bench.method.allowed(batch)
    if pooling == "cls" or architecture.startswith("deberta"):
        assert spared.sum(1).tolist() == [1] * len(batch)
        last = pooling == "cls" and architecture in ("xlnet", "bart")
        expected = [int(real[row].nonzero().flatten()[-1 if last else 0]) for row in rows]
        assert spared.long().argmax(1).tolist() == (expected if pooling == "cls" else [0] * len(batch))
    else:
        assert not spared.any()


@pytest.mark.parametrize("architecture", MAKES)
@pytest.mark.parametrize("kind", ["token", "span"])
def test_nothing_of_a_cut_token_reaches_the_prediction(architecture: str, kind: str) -> None:
    bench = still(architecture, kind=kind, ratio=0.5)
    step = bench.step()
    method = bench.method
    inside = step.batch.segment >= 0
    cut = method.positions(step) & inside
    assert cut.any()
    other = step.batch.input_ids.clone()
    other[cut] = other[inside & ~cut][0]
    assert not torch.equal(other, step.batch.input_ids)
    logits = []
    for ids in (step.batch.input_ids, other):
        mask = step.batch.attention_mask.masked_fill(cut, 0)
        batch = dataclasses.replace(step.batch, input_ids=ids, attention_mask=mask)
        method.cut = cut
        logits.append(step.forward(CUT, batch=batch))
    assert torch.allclose(*logits, atol=1e-5)
    assert not torch.allclose(logits[0], step.forward(), atol=1e-4)


@pytest.mark.parametrize("architecture", MAKES)
@pytest.mark.parametrize("kind", ["token", "feature"])
def test_the_embedding_output_is_zero_where_it_is_cut(architecture: str, kind: str) -> None:
    bench = still(architecture, kind=kind, ratio=0.5)
    seen: list[Tensor] = []
    bench.trainee.hooks.on_embedding_output(lambda tensor, site: seen.append(tensor.detach()) or tensor)
    step = bench.step()
    bench.method.terms(step, MainPass(step.forward(), None, torch.zeros(())))
    clean, cut = seen[0], seen[len(seen) // 2]
    if bench.trainee.sites.layers[0].batch_dim == 1:
        clean, cut = clean.transpose(0, 1), cut.transpose(0, 1)
    mask = step.batch.attention_mask.bool()
    zero = (cut == 0) & (clean != 0)
    assert torch.equal(cut[~zero], clean[~zero])
    if kind == "token":
        positions = bench.method.positions(step)
        assert torch.equal(zero.any(-1), positions)
        assert torch.equal(zero.all(-1), positions)
    else:
        per_row = torch.stack([row[keep].all(0) for row, keep in zip(zero, mask, strict=True)])
        assert ((per_row.sum(1) > 0) & (per_row.sum(1) <= 16)).all()
        assert torch.equal(zero & mask.unsqueeze(-1), per_row.unsqueeze(1) & mask.unsqueeze(-1))


@pytest.mark.parametrize(("rows", "ratio"), [([0], 0.3), ([0, 1, 2, 3], 0.3), ([0, 1, 2, 3], 0.0)])
@pytest.mark.parametrize("architecture", ["bert", "modernbert", "xlnet"])
def test_on_a_gpu_a_mask_is_built_where_nobody_may_look(architecture: str, rows: list[int], ratio: float) -> None:
    """The same pass, whether transformers looks for a hole in the mask or is told that there may be one."""
    looked, told = (still(architecture, ratio=ratio) for _ in range(2))
    told.trainee.grouped = True
    losses = []
    for bench in (looked, told):
        step = bench.step()
        step.batch = dataclasses.replace(bench.stream.collate(rows), padded=None)
        logits = step.forward()
        losses.append(bench.method.terms(step, MainPass(logits, None, step.task_loss(logits))))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-7)


cross_entropy = torch.nn.functional.cross_entropy


def bench_with(draw: Draw | None = None, **options: Any) -> Bench:
    """A bench without dropout whose every batch draws ``draw``."""
    names = ("architecture", "kind", "labels", "pooling", "separately", "dropout")
    more = {"dropout": STILL} | {name: options.pop(name) for name in names if name in options}
    bench = Bench([("manifold_mixup", options)], **more)
    if draw is not None:
        bench.method.drawn = lambda step: draw  # type: ignore[method-assign]
    return bench


def logits_of(bench: Bench, step: Any) -> Tensor:
    """The logits on which the loss of a step is taken."""
    kept = calls_of(step, "task_loss", lambda logits, *_: logits)
    bench.stack.backward(step)
    return kept[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("layer", [0, 1])
def test_loss_and_gradient_are_those_of_a_computation_by_hand(layer: int) -> None:
    draw = Draw(0.7, layer, torch.tensor([2, 0, 3, 1]))
    bench = bench_with(draw, labels=3)
    step = bench.step()
    total = float(bench.stack.backward(step))
    found = gradients(bench)
    bench.model.zero_grad(set_to_none=True)

    batch, bert = step.batch, bench.model.bert
    mask = batch.attention_mask | batch.attention_mask[draw.partner]
    assert not torch.equal(mask, batch.attention_mask)
    blocked = torch.zeros(mask.shape[0], 1, 1, mask.shape[1]).masked_fill(mask[:, None, None] == 0, -1e9)
    state = bert.embeddings(input_ids=batch.input_ids, token_type_ids=batch.token_type_ids)
    for index, module in enumerate(bert.encoder.layer):
        if index == layer:
            state = 0.7 * state + 0.3 * state[draw.partner]
        state = module(state, blocked)
    logits = bench.model.classifier(bert.pooler(state))
    labels = batch.labels
    by_hand = 0.7 * cross_entropy(logits, labels) + 0.3 * cross_entropy(logits, labels[draw.partner])
    assert total == pytest.approx(float(by_hand.detach()), abs=1e-5)
    by_hand.backward()
    assert close(found, gradients(bench), atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "deberta-v2", "modernbert", "albert"])
@pytest.mark.parametrize("layer", [0, 1])
def test_with_half_a_share_two_partners_have_the_same_logits(architecture: str, layer: int) -> None:
    """So the rows of all families are mixed as wholes, also where the batch is the second dimension."""
    bench = bench_with(Draw(0.5, layer, torch.tensor([1, 0, 3, 2])), architecture=architecture, pooling="cls")
    step = bench.step()
    if layer:  # below the mix both rows must be read alike
        step.batch = dataclasses.replace(step.batch, token_type_ids=None)
    logits = logits_of(bench, step)
    assert torch.allclose(logits[0], logits[1], atol=1e-5)
    assert torch.allclose(logits[2], logits[3], atol=1e-5)
    assert not torch.allclose(logits[0], logits[2], atol=1e-4)


def test_both_texts_of_a_partner_are_taken() -> None:
    assert rows_of(torch.tensor([2, 0, 1]), 1).tolist() == [2, 0, 1]
    assert rows_of(torch.tensor([2, 0, 1]), 2).tolist() == [4, 5, 0, 1, 2, 3]
    bench = bench_with(Draw(0.5, 0, torch.tensor([1, 0, 3, 2])), pooling="mean", separately=True)
    logits = logits_of(bench, bench.step())
    assert torch.allclose(logits[0], logits[1], atol=1e-5)
    assert not torch.allclose(logits[0], logits[2], atol=1e-4)


def test_a_mixed_row_attends_to_the_tokens_of_both() -> None:
    batch = bench_with().step().batch
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]])
    batch = dataclasses.replace(batch, attention_mask=mask, padded=True)
    union = with_partners(batch, torch.tensor([1, 2, 0, 3]), grouped=True)
    assert union.attention_mask.sum(1).tolist() == [3, 3, 2, 2]
    assert union.padded is True
    assert with_partners(batch, torch.arange(4), grouped=False).padded is None
    full = dataclasses.replace(batch, attention_mask=torch.ones_like(mask), padded=False)
    assert with_partners(full, torch.arange(4), grouped=False).padded is False


def test_shares_follow_the_beta_law_and_keep_the_larger_part() -> None:
    for alpha, mean in ((1.0, 0.75), (16.0, 0.569)):  # E max(s, 1 - s); 0.5 + 0.5 * C(32, 16) / 2^32 for 16
        bench = bench_with(alpha=alpha)
        step, shares = bench.step(), []
        for index in range(2000):
            step.index = index
            shares.append(bench.method.drawn(step).share)
        assert min(shares) >= 0.5
        assert sum(shares) / len(shares) == pytest.approx(mean, abs=0.01)


def test_one_layer_of_the_list_and_a_permutation_are_drawn_for_each_batch() -> None:
    bench = bench_with()
    step, draws = bench.step(), []
    for index in range(60):
        step.index = index
        draws.append(bench.method.drawn(step))
        assert sorted(draws[-1].partner.tolist()) == [0, 1, 2, 3]
    assert {draw.layer for draw in draws} == {0, 1}
    assert len({tuple(draw.partner.tolist()) for draw in draws}) > 12
    step.micro = 1
    assert bench.method.drawn(step).share != draws[-1].share
    assert {bench_with(layers=[-1]).method.drawn(bench.step(index)).layer for index in range(9)} == {1}


def test_on_regression_the_gradient_is_that_of_mixed_targets() -> None:
    draw = Draw(0.6, 0, torch.tensor([2, 0, 3, 1]))
    bench = bench_with(draw, kind="regression")
    step = bench.step()
    bench.stack.backward(step)
    found = bench.trainee.raw("classifier.weight").grad.clone()
    bench.model.zero_grad(set_to_none=True)
    bench.method.draw = draw
    logits = step.forward("mixed", batch=with_partners(step.batch, draw.partner, grouped=False))
    targets = 0.6 * step.batch.labels + 0.4 * step.batch.labels[draw.partner]
    (logits.squeeze(-1) - targets).square().mean().backward()
    assert torch.allclose(found, bench.trainee.raw("classifier.weight").grad, atol=1e-5, rtol=1e-4)


def test_the_controls_mix_one_of_the_two() -> None:
    draw = Draw(0.6, 1, torch.tensor([2, 0, 3, 1]))
    both = bench_with(draw, labels=3)
    step = both.step()
    mixed = logits_of(both, step).detach()
    labels = step.batch.labels

    states = bench_with(draw, labels=3, mixes="states")
    assert float(states.stack.backward(states.step())) == pytest.approx(float(cross_entropy(mixed, labels)), abs=1e-6)

    alone = bench_with(draw, labels=3, mixes="labels")
    own = logits_of(alone, alone.step()).detach()
    plain = Bench(labels=3, dropout=STILL)
    assert torch.equal(own, plain.step().forward().detach())
    expected = 0.6 * cross_entropy(own, labels) + 0.4 * cross_entropy(own, labels[draw.partner])
    assert float(alone.stack.backward(alone.step())) == pytest.approx(float(expected), abs=1e-6)

"""Manifold mixup against a computation by hand, its draws, and its controls."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.methods.manifold_mixup import Draw, rows_of, with_partners
from tests.methods.harness import STILL, Bench, calls_of, close, gradients

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

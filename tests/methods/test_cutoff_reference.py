"""Cutoff against numbers worked out by hand and the invariants of its paper."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.hooks.declare import MainPass
from regft_core.methods.cutoff import CUT, cut_features, cut_span, cut_tokens
from regft_core.models.load import load_classifier
from tests.methods.harness import MAKES, STILL, Bench


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
        batch = dataclasses.replace(
            step.batch, input_ids=ids, attention_mask=step.batch.attention_mask.masked_fill(cut, 0)
        )
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

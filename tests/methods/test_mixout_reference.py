"""Mixout against numbers worked out by hand and the invariants of its paper."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regft_core.methods.mixout import mix, mixed_weights
from regft_core.models.architectures import shape_of_inputs
from regft_core.training.trainee import Pass
from tests.methods.harness import Bench
from tests.tiny import ARCHITECTURES

QUERY = "bert.encoder.layer.0.attention.self.query.weight"
W0, W = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[2.0, 2.0], [1.0, 8.0]])


def mixed(
    weight: Tensor, mask: list[float], probability: float = 0.75, anchor: Tensor | None = W0, scaled: bool = True
) -> Tensor:
    return mix(weight, anchor, torch.tensor([mask]), probability, scaled)


def in_pass(bench: Bench, name: str, step: int = 0, draw: int | str = 0) -> Tensor:
    """A weight as a pass of this step and draw sees it."""
    bench.model.train()
    batch = bench.step().batch
    bench.trainee.current = Pass("main", (("main", 0, 4),), (step, 0, draw), batch.attention_mask, batch.segment)
    module, attribute = bench.trainee.module_of(name)
    seen: Tensor = getattr(module, attribute).detach().clone()
    bench.trainee.current = None
    return seen


def moved(**options: object) -> Bench:
    """A bench whose query weight is no longer the pretrained one."""
    bench = Bench([("mixout", options)])
    with torch.no_grad():
        bench.trainee.raw(QUERY).add_(1.0)
    return bench


def test_dropped_columns_are_pretrained_and_kept_ones_pushed_away() -> None:
    # p = 3/4: a kept column is W0 + 4 (W - W0).
    assert mixed(W, [0, 1]).tolist() == [[1.0, 2.0], [3.0, 20.0]]
    assert mixed(W, [1, 0]).tolist() == [[5.0, 2.0], [-5.0, 4.0]]
    assert mixed(W, [1, 0], anchor=None).tolist() == [[8.0, 0.0], [4.0, 0.0]]
    printed = torch.tensor([0.0, 1.0])
    formula = ((1 - printed) * W0 + printed * W - 0.75 * W0) / 0.25
    assert torch.allclose(mixed(W, [0, 1]), formula)


def test_a_head_that_an_earlier_phase_learned_is_mixed_with_itself() -> None:
    checkpoint = Bench().trainee.trained_weights()
    start = {name: value + 0.5 for name, value in checkpoint.items()}
    bench = Bench([("mixout", {"probability": 1.0})], start=start)
    assert torch.equal(in_pass(bench, "classifier.weight"), start["classifier.weight"])
    assert torch.equal(in_pass(bench, QUERY), checkpoint[QUERY])


def test_probability_one_freezes_to_the_pretrained_weight() -> None:
    weight = W.clone().requires_grad_()
    frozen = mixed(weight, [0, 0], probability=1.0)
    assert torch.equal(frozen, W0)
    frozen.sum().backward()
    assert not weight.grad.any()


@pytest.mark.parametrize(("scaled", "expected"), [(True, [[0.0, 4.0], [0.0, 4.0]]), (False, [[0.0, 1.0], [0.0, 1.0]])])
def test_the_released_gradient_lacks_the_factor(scaled: bool, expected: list[list[float]]) -> None:
    weight = W.clone().requires_grad_()
    found = mixed(weight, [0, 1], scaled=scaled)
    assert torch.equal(found, mixed(W, [0, 1]))
    found.sum().backward()
    assert weight.grad.tolist() == expected


def test_the_mean_over_masks_is_the_weight_and_columns_go_as_a_whole() -> None:
    bench = moved(probability=0.25)
    raw, anchor = bench.trainee.raw(QUERY).detach(), bench.trainee.anchor("checkpoint")[QUERY]
    total, dropped = torch.zeros_like(raw), 0.0
    for step in range(400):
        seen = in_pass(bench, QUERY, step)
        old = (seen == anchor).all(0)
        kept = torch.isclose(seen, anchor + (raw - anchor) / 0.75, atol=1e-5).all(0)
        assert (old ^ kept).all()
        total += seen
        dropped += old.float().mean().item()
    assert dropped / 400 == pytest.approx(0.25, abs=0.02)
    assert torch.allclose(total / 400, raw, atol=0.12)  # five standard errors


def test_masks_are_fresh_in_every_pass_and_the_same_within_a_draw() -> None:
    bench = moved(probability=0.5)
    first = in_pass(bench, QUERY)
    assert torch.equal(first, in_pass(bench, QUERY))
    assert not torch.equal(first, in_pass(bench, QUERY, draw="r_drop.second"))
    assert not torch.equal(first, in_pass(bench, QUERY, step=1))
    key = QUERY.replace("query", "key")
    with torch.no_grad():
        bench.trainee.raw(key).copy_(bench.trainee.raw(QUERY))
        bench.trainee.anchor("checkpoint")[key].copy_(bench.trainee.anchor("checkpoint")[QUERY])
    assert not torch.equal(first, in_pass(bench, key))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_linear_is_mixed_and_nothing_else(architecture: str) -> None:
    given = {"architecture": architecture, "masked_lm": architecture == "modernbert"}  # whose head is pretrained then
    bench = Bench(**given)
    linear = {f"{n}.weight" for n, m in bench.model.named_modules() if isinstance(m, nn.Linear)}
    found = mixed_weights(bench.trainee, head=True)
    assert len(found) == len(set(found))
    raw = {name for name in found if architecture == "xlnet" and name.split(".")[-1] in "qkvor"}
    assert set(found) - raw == linear
    assert len(raw) == (10 if architecture == "xlnet" else 0)
    assert not set(mixed_weights(bench.trainee, head=False)) & set(bench.trainee.sites.head)
    assert Bench([("mixout", {})], **given).method.mixed == found


def test_a_mask_covers_input_units_also_of_raw_matrices() -> None:
    assert shape_of_inputs(QUERY, torch.Size([32, 64])) == (1, 64)
    assert shape_of_inputs("transformer.layer.0.rel_attn.q", torch.Size([32, 2, 16])) == (32, 1, 1)
    assert shape_of_inputs("transformer.layer.0.rel_attn.o", torch.Size([32, 2, 16])) == (1, 2, 16)
    # A mask of ones in, zeros out of the inputs leaves no way from a dropped unit to any output.
    states, weight = torch.zeros(1, 1, 4), torch.randn(4, 2, 3)
    states[..., 1] = 1.0
    dropped = torch.tensor([1.0, 0.0, 1.0, 1.0]).view(shape_of_inputs("rel_attn.k", weight.shape)) * weight
    assert not torch.einsum("ibh,hnd->ibnd", states, dropped).any()

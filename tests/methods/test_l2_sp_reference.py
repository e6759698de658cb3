"""L2-SP against numbers worked out by hand and the invariants of its card."""

from __future__ import annotations

import pytest
import torch

from regft_core.methods.l2_sp import penalty
from tests.methods.harness import TRAINING, Bench

NAME = "bert.encoder.layer.0.output.dense.weight"


def test_worked_penalty_and_gradient() -> None:
    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    other = torch.tensor([[3.0]], requires_grad=True)
    # 0.5 * 0.1 * ((1 - 0)^2 + (-2 - 1)^2 + (3 - 1)^2) = 0.05 * 14
    term = penalty([weight, other], [torch.tensor([0.0, 1.0]), torch.tensor([[1.0]])], 0.1)
    assert float(term.detach()) == pytest.approx(0.7)
    term.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == pytest.approx([0.1, -0.3])
    assert other.grad is not None
    assert other.grad.item() == pytest.approx(0.2)
    assert float(penalty([weight.detach()], None, 2.0)) == pytest.approx(5.0)


def test_at_the_start_the_penalty_is_0_and_has_no_gradient() -> None:
    bench, plain = Bench([("l2_sp", {"strength": 10.0})]), Bench()
    for one in (bench, plain):
        one.stack.backward(one.step())
    assert all(
        torch.equal(p.grad, q.grad)
        for (_, p), (_, q) in zip(bench.trainee.named_trainable(), plain.trainee.named_trainable(), strict=True)
        if p.grad is not None and q.grad is not None
    )


def test_away_from_the_start_the_gradient_is_that_of_the_penalty() -> None:
    bench, plain = Bench([("l2_sp", {"strength": 10.0})]), Bench()
    for one in (bench, plain):
        with torch.no_grad():
            one.model.get_parameter(NAME).add_(0.5)
        one.stack.backward(one.step())
    difference = bench.model.get_parameter(NAME).grad - plain.model.get_parameter(NAME).grad
    assert torch.allclose(difference, torch.full_like(difference, 5.0), atol=1e-4)
    assert torch.equal(bench.model.classifier.weight.grad, plain.model.classifier.weight.grad)


def test_accumulated_batches_add_the_penalty_once() -> None:
    bench, plain = Bench([("l2_sp", {"strength": 10.0})]), Bench()
    for one in (bench, plain):
        with torch.no_grad():
            one.model.get_parameter(NAME).add_(0.5)
        for micro in range(2):
            one.stack.backward(one.step(micro, micro=micro, share=0.5))
    difference = bench.model.get_parameter(NAME).grad - plain.model.get_parameter(NAME).grad
    assert torch.allclose(difference, torch.full_like(difference, 5.0), atol=1e-4)


def test_the_decoupled_pull_shrinks_the_distance_by_rate_times_strength() -> None:
    training = TRAINING.model_copy(update={"max_steps": 1, "schedule": "constant", "warmup_ratio": 0.0})
    bench = Bench([("l2_sp", {"form": "decoupled", "strength": 300.0})], training=training)
    plain = Bench(training=training.model_copy(update={"weight_decay": 0.0}))
    start = {name: p.detach().clone() for name, p in bench.trainee.named_raw()}
    pulled, free = bench.train(), plain.train()
    for name in (NAME, "bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.output.dense.bias"):
        expected = start[name] + (1 - 1e-3 * 300) * (free[name] - start[name])
        assert torch.allclose(pulled[name], expected, atol=1e-7)


def test_pretrained_tensors_lose_the_plain_decay_and_the_head_keeps_it() -> None:
    loop = Bench([("l2_sp", {})]).loop()
    decays = {name: group["weight_decay"] for group in loop.groups for name in group["names"]}
    assert decays[NAME] == 0
    assert decays["classifier.weight"] == 0.01


def test_the_target_may_be_the_start_of_the_phase_or_zero() -> None:
    moved = {name: value + 0.1 for name, value in Bench().trainee.plain_weights().items() if value.is_floating_point()}
    for toward, expected in (("checkpoint", 0.1), ("start", 0.0)):
        bench = Bench([("l2_sp", {"toward": toward})], start=moved)
        anchor = bench.trainee.anchor(toward)  # type: ignore[arg-type]
        assert float((bench.model.get_parameter(NAME).detach() - anchor[NAME]).abs().max()) == pytest.approx(
            expected, abs=1e-6
        )
    zero = Bench([("l2_sp", {"toward": "zero"})])
    assert zero.trainee.anchors == {}
    zero.train()

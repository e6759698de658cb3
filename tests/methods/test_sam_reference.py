"""Sharpness-aware minimisation against numbers worked out by hand and the invariants of its algorithm."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.errors import RunFailed
from regft_core.methods.sam import moves
from tests.errors import raises_code
from tests.methods.harness import TRAINING, Bench, close, same, watched

FORMS: dict[str, dict[str, Any]] = {
    "sam": {"radius": 0.3},
    "asam": {"radius": 0.3, "adaptive": True},
    "random": {"radius": 0.3, "direction": "random"},
    "random_asam": {"radius": 0.3, "direction": "random", "adaptive": True},
}


def weights(bench: Bench) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in bench.trainee.named_raw()}


def moved(bench: Bench) -> dict[str, Tensor]:
    """How far the weights are from their place in the last pass of one step."""
    before, step = weights(bench), bench.step()
    passes = watched(step, lambda _: weights(bench))
    bench.stack.backward(step)
    return {name: value - before[name] for name, value in passes[-1][-1].items()}


W = {"a.weight": torch.tensor([3.0, -1.0]), "a.bias": torch.tensor([5.0])}
G = {"a.weight": torch.tensor([1.0, 2.0]), "a.bias": torch.tensor([2.0])}


def test_the_adaptive_move_is_in_units_of_each_weight_and_of_one_for_biases() -> None:
    # T = (3.5, 1.5, 1); T g = (3.5, 3, 2), its norm sqrt(12.25 + 9 + 4) = sqrt(25.25); the move is r T T g / norm.
    norm = math.sqrt(25.25)
    found = moves(W, G, 2.0, 0.5)
    assert found["a.weight"].tolist() == pytest.approx([2 * 3.5 * 3.5 / norm, 2 * 1.5 * 3 / norm])
    assert found["a.bias"].tolist() == pytest.approx([2 * 2 / norm])


@pytest.mark.parametrize("value", [0.0, math.inf, math.nan])
@pytest.mark.parametrize("eta", [None, 0.01])
def test_a_gradient_without_a_direction_moves_nothing(value: float, eta: float | None) -> None:
    found = moves(W, {"a.weight": torch.zeros(2), "a.bias": torch.tensor([value])}, 0.5, eta)
    assert not any(one.any() for one in found.values())


@pytest.mark.parametrize("form", ["sam", "asam"])
@pytest.mark.parametrize("architecture", ["bert", "xlnet", "bart"])
def test_the_gradient_is_that_of_plain_fine_tuning_at_the_moved_weights(form: str, architecture: str) -> None:
    """With dropout: both passes see the masks of the plain pass."""
    options = FORMS[form]
    plain = Bench(architecture=architecture)
    first = plain.gradients()
    by_hand = Bench(architecture=architecture)
    own = {n: p for n, p in by_hand.trainee.named_trainable() if n in first}
    with torch.no_grad():
        sizes = {n: p.abs() + 0.01 if form == "asam" and not n.endswith("bias") else 1.0 for n, p in own.items()}
        norm = torch.stack([(first[n] * sizes[n]).square().sum() for n in own]).sum().sqrt()
        for name, parameter in own.items():
            parameter.add_(options["radius"] * sizes[name] * sizes[name] * first[name] / norm)
    wanted = by_hand.gradients()
    found = Bench([("sam", options)], architecture=architecture).gradients()
    assert not close(found, first, rtol=0.01)
    assert close(found, wanted, rtol=1e-3)


def test_the_weights_are_back_after_an_error() -> None:
    bench = Bench([("sam", FORMS["sam"])])
    before, step = weights(bench), bench.step()

    def failing(loss: Tensor, passes: float = 1.0) -> None:
        assert not all(torch.equal(value, before[name]) for name, value in weights(bench).items())
        raise torch.OutOfMemoryError("no memory")

    step.backward = failing  # type: ignore[method-assign]
    with pytest.raises(torch.OutOfMemoryError):
        bench.stack.backward(step)
    assert all(torch.equal(value, before[name]) for name, value in weights(bench).items())


@pytest.mark.parametrize("form", FORMS)
def test_both_directions_move_as_far(form: str) -> None:
    """In units of each weight where the move is adaptive."""
    bench = Bench([("sam", FORMS[form])])
    adaptive = {n: value.abs() + 0.01 for n, value in weights(bench).items() if "asam" in form and n[-4:] != "bias"}
    length = torch.stack([(one / adaptive.get(n, 1.0)).square().sum() for n, one in moved(bench).items()]).sum().sqrt()
    assert length.item() == pytest.approx(0.3, rel=1e-3)


def test_a_scaled_loss_changes_no_direction() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    found = Bench([("sam", FORMS["asam"])]).gradients(scaler=scaler)
    plain = Bench([("sam", FORMS["asam"])]).gradients()
    assert close({name: value / 1024 for name, value in found.items()}, plain, atol=1e-7)


def test_a_step_that_overflows_in_half_precision_changes_nothing() -> None:
    training = TRAINING.model_copy(update={"precision": "fp16", "max_steps": 1, "warmup_ratio": 0.0})
    for scale, moves_on in ((2.0**8, True), (2.0**40, False)):
        bench = Bench([("sam", FORMS["sam"])], training=training)
        before, loop = weights(bench), bench.loop()
        loop.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        with nullcontext() if moves_on else raises_code(RunFailed, "not-finite"):  # no other step learns anything
            loop.train()
        after = weights(bench)
        assert all(value.isfinite().all() for value in after.values())
        assert any(not torch.equal(value, before[name]) for name, value in after.items()) == moves_on


def test_frozen_tensors_do_not_move_and_attached_ones_do() -> None:
    bench = Bench([("sam", FORMS["sam"]), ("lora", {"rank": 2})])
    step, attached = bench.step(), dict(bench.trainee.attached.named_parameters())
    passes = watched(step, lambda _: {name: p.detach().clone() for name, p in attached.items()})
    bench.stack.backward(step)
    assert not same(passes[0][-1], passes[1][-1])
    frozen = moved(Bench([("sam", FORMS["sam"]), ("top_k_layers", {"layers": 1})]))
    assert not frozen["bert.embeddings.word_embeddings.weight"].any()
    assert frozen["classifier.weight"].any()

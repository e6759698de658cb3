"""Weight mixup with many tensors acted on at once, as on a GPU, against one after the other, as on a CPU.

The weights come back with the same bits. Sums in another order and a fused update differ by some 2^-24, which finite
differences of a radius of 0.01 enlarge.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.methods.weight_mixup import WeightMixup
from regft_core.training import bilevel
from tests.methods.harness import TRAINING, Bench

#: A learning rate from the first step on, so that the virtual step moves the weights.
CONSTANT = TRAINING.model_copy(update={"warmup_ratio": 0.0, "schedule": "constant"})
SEARCHES: dict[str, dict[str, Any]] = {
    "paper": {},
    "reused": {"inner_gradient": "reused"},
    "implicit one": {"implicit": "one"},
    "first order": {"implicit": "none"},
    "every second step": {"interval": 2},
    "convex": {"form": "convex"},
    "full rank": {"form": "full_rank"},
    "rank 2": {"rank": 2},
    "released": {"variant": "released"},
    "released, first order": {"variant": "released", "implicit": "none"},
}


def searching(options: dict[str, Any], **more: Any) -> Bench:
    return Bench([("weight_mixup", options)], phase="search-0", validation=True, **{"training": CONSTANT, **more})


def relative_difference(one: list[Tensor], other: list[Tensor]) -> float:
    difference = bilevel.global_norm([a - b for a, b in zip(one, other, strict=True)])
    return float(difference / bilevel.global_norm(other))


def first_step(options: dict[str, Any], grouped: bool) -> tuple[list[Tensor], list[Tensor], list[Tensor], Any]:
    """Hypergradient, weights as it left them, their gradients for the loop, and what was logged in the first step."""
    bench = searching(options, grouped=grouped)
    loop = bench.loop()
    step = bench.step(validation=bench.validation, optimizer=loop.optimizer, learning_rate=1e-3)
    seen: list[list[Tensor]] = []
    two_level = bench.regulariser(WeightMixup).two_level
    original = two_level._update

    def spy(step: Any, gradient: list[Tensor]) -> None:
        seen.append([slope.clone() for slope in gradient])
        seen.append([weight.detach().clone() for weight in step.weights()])
        original(step, gradient)

    two_level._update = spy  # type: ignore[method-assign]
    bench.regulariser(WeightMixup).backward(step)
    slopes = [torch.zeros_like(w) if w.grad is None else w.grad for w in step.weights()]
    return seen[0], seen[1], slopes, bench.stack.diagnostics().values


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_step_is_the_same_but_for_rounding(name: str) -> None:
    (found, left, slopes, logged), (expected, before, wanted, known) = (
        first_step(SEARCHES[name], grouped) for grouped in (True, False)
    )
    assert relative_difference(found, expected) < 2e-5
    if name == "released":  # displaced along the direction, whose factors are computed another way
        assert relative_difference(left, before) < 1e-6
    else:
        assert all(torch.equal(a, b) for a, b in zip(left, before, strict=True))
    assert relative_difference(slopes, wanted) < 2e-5
    for (key, step, value), (other, at, number) in zip(logged, known, strict=True):
        assert (key, step) == (other, at)
        assert value == pytest.approx(number, rel=1e-5)


def test_a_gradient_in_the_place_of_two_is_taken_once() -> None:
    """What is handed to the loop must not be the tensors that autograd gave, which may be one for two weights."""
    bench = searching({"inner_gradient": "reused"}, grouped=True)
    loop = bench.loop()
    step = bench.step(validation=bench.validation, optimizer=loop.optimizer, learning_rate=1e-3, share=0.5)
    given: list[Tensor] = []
    original = bilevel.gradients

    def spy(loss: Tensor, inputs: Any) -> list[Tensor]:
        found = original(loss, inputs)
        given.extend(found if not given else [])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bilevel, "gradients", spy)
        bench.regulariser(WeightMixup).backward(step)
    slopes = [weight.grad for weight in step.weights()]
    assert all(torch.equal(a, 0.5 * b) for a, b in zip(slopes, given, strict=True) if a is not None)
    assert not {a.data_ptr() for a in slopes if a is not None} & {b.data_ptr() for b in given}

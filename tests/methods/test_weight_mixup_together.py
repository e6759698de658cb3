"""Weight mixup with many tensors acted on at once, as on a GPU, against one after the other, as on a CPU.

Mixes and gradients of weights have the same bits. Gradients of the attention are sums in another order, and its update
is a fused one: relative differences of some 2^-24, which finite differences of a radius of 0.01 enlarge.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regft_core.hooks.declare import Handed
from regft_core.methods.weight_mixup import WeightMixup
from regft_core.training import bilevel
from tests.methods.harness import TRAINING, Bench, largest_difference, same
from tests.methods.interruption import resumed
from tests.tiny import ARCHITECTURES

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


def mixup(bench: Bench) -> WeightMixup:
    regulariser = bench.stack.regularisers[0]
    assert isinstance(regulariser, WeightMixup)
    return regulariser


def attention_of(bench: Bench) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in mixup(bench)._attention().items()}


def relative_difference(one: list[Tensor], other: list[Tensor]) -> float:
    difference = bilevel.global_norm([a - b for a, b in zip(one, other, strict=True)])
    return float(difference / bilevel.global_norm(other))


# ---------------------------------------------------------------------------------------- search


def first_step(options: dict[str, Any], grouped: bool) -> tuple[list[Tensor], list[Tensor], list[Tensor], Any]:
    """Hypergradient, weights as it left them, their gradients for the loop, and what was logged in the first step."""
    bench = searching(options, grouped=grouped)
    loop = bench.loop()
    step = bench.step(validation=bench.validation, optimizer=loop.optimizer, learning_rate=1e-3)
    seen: list[list[Tensor]] = []
    two_level = mixup(bench).two_level
    original = two_level._update

    def spy(step: Any, gradient: list[Tensor]) -> None:
        seen.append([slope.clone() for slope in gradient])
        seen.append([weight.detach().clone() for weight in step.weights()])
        original(step, gradient)

    two_level._update = spy  # type: ignore[method-assign]
    mixup(bench).backward(step)
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


@pytest.mark.parametrize("name", SEARCHES)
def test_a_whole_search_follows_the_same_curve(name: str) -> None:
    together, single = (searching(SEARCHES[name], grouped=grouped) for grouped in (True, False))
    done, expected = together.loop().train(), single.loop().train()
    assert done.forward_passes == pytest.approx(expected.forward_passes)
    assert done.backward_passes == pytest.approx(expected.backward_passes)
    for row, other in zip(done.curve, expected.curve, strict=True):
        assert row[2] == pytest.approx(other[2], rel=1e-3)
    attention, wanted = (attention_of(bench) for bench in (together, single))
    assert all(value.min() >= 0 and value.max() <= 1 for value in attention.values())
    # An update moves an entry by at most about the learning rate, whatever its gradient.
    assert largest_difference(attention, wanted) < 0.1 * 2e-3
    assert any(not torch.equal(value, torch.ones_like(value)) for value in attention.values())


@pytest.mark.parametrize("name", ["paper", "reused", "convex", "full rank", "released"])
def test_a_resumed_search_has_the_bits_of_an_uninterrupted_one(name: str) -> None:
    whole = searching(SEARCHES[name], grouped=True)
    expected = whole.train()
    weights, logged = resumed(lambda: searching(SEARCHES[name], grouped=True), at=3)
    assert same(weights, expected)
    assert logged == whole.stack.diagnostics().values


def test_the_weights_come_back_bit_for_bit() -> None:
    bench = searching({}, grouped=True)
    loop = bench.loop()
    step = bench.step(validation=bench.validation, optimizer=loop.optimizer, learning_rate=0.3)
    before = [weight.detach().clone() for weight in step.weights()]
    mixup(bench).two_level.virtual(step)
    assert all(torch.equal(one, other) for one, other in zip(step.weights(), before, strict=True))


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
        mixup(bench).backward(step)
    slopes = [weight.grad for weight in step.weights()]
    assert all(torch.equal(a, 0.5 * b) for a, b in zip(slopes, given, strict=True) if a is not None)
    assert not {a.data_ptr() for a in slopes if a is not None} & {b.data_ptr() for b in given}


class _Lists(TorchDispatchMode):
    """Collects operations on lists that a GPU would do one tensor at a time.

    For one kernel over many tensors those at the same place must be of one shape, type and order in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.together: set[str] = set()
        self.single: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if "_foreach_" in name or "_fused_" in name:
            self.together.add(name)
            # Of a fused update: parameters, gradients and two averages; it fails where they differ.
            lists = [given for given in args[:4] if isinstance(given, list | tuple) and isinstance(given[0], Tensor)]
            for tensors in zip(*lists, strict=True):
                kinds = {(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors}
                if len(kinds) > 1 or not tensors[0].is_contiguous():
                    self.single.append(f"{name}: {sorted(map(str, kinds))}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [*SEARCHES, "released fine-tuning", "joint"])
def test_operations_on_lists_are_such_that_a_gpu_does_at_once(name: str) -> None:
    if name == "joint":
        bench = tuned({"attention": "joint"}, grouped=True)
    else:
        bench = searching(SEARCHES[name], grouped=True) if name in SEARCHES else released_tuning(grouped=True)
    loop = bench.loop()
    bench.model.train()
    for index, rows in enumerate(loop.stream.steps(0, 1)[:2]):
        loop.done.step = index
        with _Lists() as found:
            loop._step(rows)
        assert found.single == []
        assert {"aten._foreach_mul.List", "aten._foreach_add_.List", "aten._foreach_norm.Scalar"} <= found.together


# ----------------------------------------------------------------------------------- fine-tuning


def tuned(options: dict[str, Any], grouped: bool, **more: Any) -> Bench:
    """Fine-tuning under a random attention."""
    given = {"attention": "random", "initial_std": 0.3, **options}
    return Bench([("weight_mixup", given)], grouped=grouped, **more)


@pytest.mark.parametrize("options", [{"form": "convex"}, {"form": "full_rank"}, {"rank": 2}, {"variant": "released"}])
def test_fine_tuning_has_the_same_bits(options: dict[str, Any]) -> None:
    together, single = (tuned(options, grouped).train() for grouped in (True, False))
    assert same(together, single) or ("rank" in options and largest_difference(together, single) < 1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_fine_tuning_has_the_same_bits_in_every_family(architecture: str) -> None:
    together, single = (tuned({}, grouped, architecture=architecture).train() for grouped in (True, False))
    if architecture == "albert":  # its layers are one, and gradients of its uses are added before they are multiplied
        assert largest_difference(together, single) < 1e-4
    else:
        assert same(together, single)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_matrix_that_no_pass_reads_is_left_alone(pooling: str) -> None:
    """Without a pooler's gradient the optimiser does not decay it either."""
    together, single = (tuned({}, grouped, pooling=pooling).train() for grouped in (True, False))
    assert same(together, single)


def test_frozen_layers_stay_and_the_others_have_the_same_bits() -> None:
    def trained(grouped: bool) -> dict[str, Tensor]:
        given = [("weight_mixup", {"attention": "random", "initial_std": 0.3}), ("top_k_layers", {"layers": 1})]
        return Bench(given, grouped=grouped).train()

    together, single = trained(True), trained(False)
    assert same(together, single)


def test_a_joint_attention_is_trained_to_the_same_but_for_rounding() -> None:
    together, single = (tuned({"attention": "joint"}, grouped) for grouped in (True, False))
    done, expected = together.loop().train(), single.loop().train()
    for row, other in zip(done.curve, expected.curve, strict=True):
        assert row[2] == pytest.approx(other[2], rel=1e-4)
    attention, wanted = (attention_of(bench) for bench in (together, single))
    assert largest_difference(attention, wanted) < 0.1 * 2e-3


def released_tuning(grouped: bool) -> Bench:
    """Fine-tuning as in the released code, under the attention that a search starts with."""
    tight = TRAINING.model_copy(update={"clip_norm": 0.1, "optimizer": "adamax"})
    learned = searching({"variant": "released"})
    handed = {"search": Handed("key", learned.stack.hand(learned.trainee))}
    given = {"attention": "search", "variant": "released"}
    return Bench([("weight_mixup", given)], handed=handed, training=tight, grouped=grouped)


@pytest.mark.parametrize("scale", [None, 1024.0])
def test_the_released_clip_norm_counts_the_same(scale: float | None) -> None:
    norms = []
    for grouped in (True, False):
        loop = released_tuning(grouped).loop()
        if scale is not None:
            loop.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        norms.append([row[4] for row in loop.train().curve])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one() -> None:
    whole = tuned({"attention": "joint"}, grouped=True)
    expected = whole.train()
    weights, logged = resumed(lambda: tuned({"attention": "joint"}, grouped=True), at=3)
    assert same(weights, expected)
    assert logged == whole.stack.diagnostics().values


def test_one_after_the_other_is_what_a_cpu_does() -> None:
    bench = tuned({}, grouped=False)
    made: list[Any] = []
    mixup(bench).together.make = lambda: made.append(1)  # type: ignore[method-assign]
    bench.loop().train()
    assert made == []

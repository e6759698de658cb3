"""Recorded steps against steps as usual; on the CPU with a recorder that runs the recorded function again.

``tests/gpu`` compares real CUDA graphs with eager steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regft_core.training.graphs import recordable
from tests.methods.harness import TRAINING, Bench, same

ADAMAX = TRAINING.model_copy(update={"optimizer": "adamax"})
LONG = TRAINING.model_copy(update={"epochs": 5})


class Again:
    """A recorder that repeats a function by calling it; like a graph, it leaves ``.grad`` alone."""

    def __init__(self, bench: Bench) -> None:
        self.recorded = self.replayed = 0
        self.parameters = [parameter for _, parameter in bench.trainee.named_trainable()]

    def __call__(self, function: Callable[[], None]) -> Callable[[], Any]:
        def replay() -> None:
            self.replayed += 1
            kept = [parameter.grad for parameter in self.parameters]
            function()
            for parameter, gradient in zip(self.parameters, kept, strict=True):
                parameter.grad = gradient

        self.recorded += 1
        replay()
        return replay


@pytest.mark.parametrize(
    ("regularisers", "training"),
    [
        ([], LONG),
        ([], LONG.model_copy(update={"accumulation": 2, "clip_norm": 0.5})),
        ([("pats", {})], ADAMAX.model_copy(update={"epochs": 4})),
        ([("weight_mixup", {"attention": "random"})], LONG),
    ],
)
def test_replayed_steps_have_the_bits_of_steps_as_usual(regularisers: list[Any], training: Any) -> None:
    bench = Bench(regularisers, training=training)
    recorder = Again(bench)
    loop = bench.loop(recorder=recorder)
    done = loop.train()
    bench.stack.export(bench.trainee)
    usual = Bench(regularisers, training=training)
    assert same(bench.trainee.plain_weights(), usual.train())
    assert recorder.recorded > 1
    assert loop.graphs is not None
    assert recorder.replayed - recorder.recorded >= done.batches / 3
    assert done.forward_passes == done.backward_passes == done.batches
    assert not recordable(bench.stack, "fp16")  # whose loss is scaled


@pytest.mark.parametrize(
    ("name", "options", "more"),
    [
        ("hype", {}, {}),
        ("tdt", {}, {}),
        ("r_drop", {}, {}),
        ("mask_tuning", {}, {"masked_lm": True}),
        ("weight_mixup", {}, {"phase": "search", "validation": True}),
    ],
)
def test_a_step_that_is_more_than_a_plain_pass_is_not_recorded(name: str, options: Any, more: Any) -> None:
    bench = Bench([(name, options)], **more)
    assert not recordable(bench.stack, "fp32")
    assert bench.loop(recorder=Again(bench)).graphs is None

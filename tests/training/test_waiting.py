"""No step waits for the device, but for every n-th, in which values are logged."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.training.loop import Loop
from tests.methods.harness import TRAINING, Bench
from tests.tiny import ARCHITECTURES
from tests.waiting import Waits, step_counts

#: Why a family's own code waits, whatever it is given.
WAITING_FAMILIES = {
    "bart": "its head looks for the end tokens of every text",
    "deberta": "its relative positions are cut with numbers that it keeps on the device",
    "xlnet": "one_hot checks its input, on CPUs only",
}


def waits_of(bench: Bench, steps: int = 3) -> list[str]:
    """What steps 2 to ``steps`` wait for; the first one may (it logs, and states are made)."""
    loop: Loop = bench.loop()
    bench.model.train()
    bench.trainee.attached.train()
    batches = loop.stream.steps(0, 1)
    loop._step(batches[0])
    found = []
    for index in range(1, steps):
        loop.done.step = index
        searched = [r.two_level.optimizer for r in bench.stack.regularisers if hasattr(r, "two_level")]
        with Waits(step_counts(loop.optimizer, *searched)) as waits:
            loop._step(batches[index])
        found += waits.found
    return found


SEARCH: dict[str, Any] = {"phase": "search", "validation": True}
STEPS: dict[str, tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]] = {
    "vanilla": ([], {}),
    "adamax": ([], {"training": TRAINING.model_copy(update={"optimizer": "adamax"})}),
    "hype_n": ([("hype", {})], {}),
    "pats": ([("pats", {})], {"training": TRAINING.model_copy(update={"optimizer": "adamax"})}),
    "tdt": ([("tdt", {})], {}),
    "tdt_released": ([("tdt", {"variant": "released"})], {}),
    "mask_tuning": ([("mask_tuning", {})], {"masked_lm": True}),
    "mask_tuning_separate": ([("mask_tuning", {"coupling": "separate"})], {"masked_lm": True}),
    "weight_mixup": ([("weight_mixup", {"attention": "random"})], {}),
    "weight_mixup search": ([("weight_mixup", {})], SEARCH),
    "weight_mixup search, rank 2": ([("weight_mixup", {"rank": 2})], SEARCH),
    "weight_mixup_released search": ([("weight_mixup", {"variant": "released"})], SEARCH),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_logs_nothing_waits_for_nothing(name: str) -> None:
    regularisers, options = STEPS[name]
    assert waits_of(Bench(regularisers, pair=True, grouped=True, **options)) == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_encoders_are_not_asked_to_look_at_the_mask(architecture: str) -> None:
    found = waits_of(Bench(architecture=architecture, pair=True, grouped=True))
    assert bool(found) == (architecture in WAITING_FAMILIES), found


def test_what_waits_is_found() -> None:
    values = torch.tensor([1.0, 0.0])
    count = torch.tensor(3.0)
    with Waits([count]) as waits:
        float(count)
        assert waits.found == []
        float(values.sum())
        values.nonzero()
        values[values > 0]
        values.tolist()
        torch.tensor([1.0], device="cpu")
        values[torch.tensor([1, 0])]
    names = [place.split(" at ")[0] for place in waits.found]
    assert names == ["_local_scalar_dense", "nonzero", "index", "tolist", "tensor"]
    assert all("test_waiting.py" in place for place in waits.found)


def test_transformers_looks_where_nobody_says_whether_there_is_padding() -> None:
    """The guard sees the check that finished masks avoid."""
    bench = Bench(pair=True)
    inputs = bench.stream.batch(0).model_inputs()
    with Waits() as waits:
        bench.model(**inputs)
    assert any("masking_utils" in place for place in waits.found)

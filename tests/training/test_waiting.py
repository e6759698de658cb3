"""No step waits for the device, but for every n-th, in which values are logged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from regft_core.runs.phase import WAITING_FAMILIES
from regft_core.training.loop import Loop
from tests.methods.cases import CASES, OTHER_CASES, Case
from tests.methods.chain import method
from tests.methods.harness import TRAINING, Bench
from tests.tiny import ARCHITECTURES, EMBEDDERS
from tests.waiting import UNREADABLE, Waits, step_counts, unreadable


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


#: Looks of a step under fp16, in which an overflow skips the update: (regularisers, optimiser, looks).
HALF: dict[str, tuple[list[tuple[str, dict[str, Any]]], str, int]] = {
    "adamw": ([], "adamw", 0),  # its fused update is told of an overflow on the device
    "adamax": ([], "adamax", 1),  # torch asks, since the update cannot be taken back
    "pats": ([("pats", {})], "adamax", 1),
    "freelb": ([("freelb", {})], "adamw", 0),
    "sam": ([("sam", {"adaptive": True})], "adamw", 0),
    "dps": ([("dps", {"block": 0.5})], "adamw", 1),  # its sums must not take in a gradient that overflowed
}


@pytest.mark.parametrize("name", HALF)
def test_half_precision_looks_at_most_once_in_a_step(name: str) -> None:
    regularisers, optimizer, looks = HALF[name]
    training = TRAINING.model_copy(update={"precision": "fp16", "optimizer": optimizer})
    found = waits_of(Bench(regularisers, training=training, pair=True, grouped=True))
    assert len(found) == 2 * looks, found
    assert all(place.startswith("_local_scalar_dense") for place in found)


# ------------------------------------------------------------- every method, on a device of which nothing can be read

#: Regularisers that read weights or texts before the first step; on the device they are put there after that.
READS_BEFORE = ("linear_head", "noisy_tune", "verbaliser")
#: Further options and forms of the input.
OPTIONS: dict[str, tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]] = {
    "cutoff, span, pooled": ([("cutoff", {"kind": "span"})], {"pooling": "cls", "keyword_segment": "text"}),
    "cutoff, texts apart": ([("cutoff", {})], {"pooling": "mean", "separately": True}),
    "dps, long blocks": ([("dps", {"block": 0.2, "mode": "mix"})], {}),
    "masked_lm, replaced": ([("masked_lm", {"replacement": "bert"})], {"phase": "post", "masked_lm": True}),
    "masked_lm, each by chance": (
        [("masked_lm", {"selection": "bernoulli"})],
        {"phase": "post", "masked_lm": True},
    ),
    "pats, limited": ([("pats", {"max_std": 1e-3, "noise_std": "linear"})], {}),
    "r4f, three classes": ([("r4f", {})], {"labels": 3, "pooling": "mean"}),
    "adamax": ([], {"training": TRAINING.model_copy(update={"optimizer": "adamax"})}),
    "regression": ([("r3f", {}), ("smart", {})], {"kind": "regression"}),
}
#: How many tokens are masked is drawn there, and the head reads that many: it waits all the same.
BY_CHANCE = "each by chance"


def _of_case(case: Case, device: torch.device, **training: Any) -> Bench:
    changes = {"dropout": TRAINING.dropout, "batch_size": 4, "accumulation": 1, "max_steps": 6, **training}
    form = {"pair": True, "training": case.phase.training.model_copy(update=changes)}
    if case.name not in READS_BEFORE:
        return case.bench(device=device, **form)
    bench = case.bench(**form)
    bench.model.to(device)
    bench.trainee.device = bench.stream.device = device
    return bench


CHOSEN = {
    f"{number}-{case.key}{BY_CHANCE if vars(case.options).get('selection') == 'bernoulli' else ''}": case
    for number, case in enumerate((*CASES, *OTHER_CASES))
    if case.phase.training.epochs
}
STEPPED: dict[str, Callable[[], Bench]] = {
    **{name: partial(_of_case, case, UNREADABLE) for name, case in CHOSEN.items()},
    **{
        name: partial(Bench, listed, device=UNREADABLE, **{"pair": True, **more})
        for name, (listed, more) in OPTIONS.items()
    },
}


#: Other options than the defaults are tried slowly.
SLOW = [name for name in CHOSEN if int(name.split("-")[0]) >= len(CASES)]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in STEPPED])
def test_no_method_reads_from_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it send anything there from memory that is not pinned, or mix what is on the host with what is not.

    The third and the fourth step are looked at, up to the first that reads a value: there is none to go on with.
    """
    unreadable(monkeypatch)
    bench = STEPPED[name]()
    loop = bench.loop()
    # DPS learns in its first step how long its blocks are, which then is to be the last of a block.
    first = 1 if "dps" in name else 2
    bench.model.train()
    bench.trainee.attached.train()
    rows = loop.stream.steps(0, 1)
    with Waits(device=UNREADABLE) as waits:
        for index in range(first, 4):
            loop.done.step = index
            try:
                loop._step(rows[index % len(rows)])
            except (NotImplementedError, RuntimeError):
                if not waits.found:
                    raise
                break
    assert bool(waits.found) == (BY_CHANCE in name), waits.found


def test_the_released_clip_of_weight_mixup_does_not_read_the_scale_of_half_precision() -> None:
    """Its attention and pretrained copies are in the clip norm, and no optimiser has unscaled their gradients."""
    search, final = method("weight_mixup_released").phases
    bench = _of_case(Case("weight_mixup", final, (search,)), torch.device("cpu"), precision="fp16", optimizer="adamw")
    (mixup,) = bench.stack.regularisers
    assert mixup._extra_in_clip
    assert waits_of(bench) == []


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *EMBEDDERS])
def test_where_an_encoders_own_code_waits_for_a_gpu(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a pass is not recorded as a CUDA graph (``run/run_phase.py``): CUDA refuses to wait meanwhile."""
    unreadable(monkeypatch)
    bench = Bench(architecture=architecture, pair=True, device=UNREADABLE)
    loop = bench.loop()
    bench.model.train()
    loop.done.step = 1
    with Waits(device=UNREADABLE) as waits:
        try:
            loop._step(loop.stream.steps(0, 1)[1])
        except RuntimeError:
            if not waits.found:
                raise
    assert bool(waits.found) == (architecture in WAITING_FAMILIES), waits.found

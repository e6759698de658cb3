"""No step waits for the device, but for every n-th, in which values are logged."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from regft_core.runs.phase import WAITING_FAMILIES
from regft_core.schema.method import Phase
from regft_core.training.loop import Loop
from tests.methods.cases import CASES, REGISTRY
from tests.methods.chain import METHODS, method, names_layers, runner, six_layers
from tests.methods.harness import TRAINING, Bench
from tests.tiny import ARCHITECTURES, EMBEDDERS
from tests.waiting import UNREADABLE, Waits, step_counts, unreadable

#: Why a family's own code reads tensors, whatever it is given.


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
#: Options that no file of ``pipelines/methods`` has.
OPTIONS: dict[str, tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]] = {
    "cutoff, span, pooled": ([("cutoff", {"kind": "span"})], {"pooling": "cls", "keyword_segment": "text"}),
    "cutoff, texts apart": ([("cutoff", {})], {"pooling": "mean", "separately": True}),
    "dps, long blocks": ([("dps", {"block": 0.2, "mode": "mix"})], {}),
    "mask_tuning, each by chance": ([("mask_tuning", {"selection": "bernoulli"})], {"masked_lm": True}),
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
#: What waits all the same, each with the reason.
WAITING = {
    "mask_tuning, each by chance": "how many tokens are masked is drawn, and the head reads that many",
    "masked_lm, each by chance": "how many tokens are masked is drawn, and the head reads that many",
}


@dataclass(frozen=True)
class Stepped:
    """Something that takes steps, after the phases ``before`` it."""

    listed: list[tuple[str, dict[str, Any]]]
    options: dict[str, Any]
    before: tuple[Phase, ...] = ()

    def bench(self, device: torch.device) -> Bench:
        given = {"pair": True, **self.options}
        if self.before:
            once = [replace(phase, repeat=None) for phase in self.before]
            done = runner(masked_lm=True, pair=True).run(once, steps=1)
            given |= {"handed": {name: ran.handed for name, ran in done.items()}}
        if not {name for name, _ in self.listed} & set(READS_BEFORE):
            return Bench(self.listed, device=device, **given)
        bench = Bench(self.listed, **given)
        bench.model.to(device)
        bench.trainee.device = bench.stream.device = device
        return bench


def _switches(listed: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The options with only the sign of numbers, whose size no branch of a step depends on."""

    def switch(value: Any) -> Any:
        return (value > 0) - (value < 0) if isinstance(value, int | float) and not isinstance(value, bool) else value

    return [[name, {key: switch(value) for key, value in options.items()}] for name, options in listed]


def _declared() -> dict[str, Stepped]:
    """Each distinct phase with steps of ``pipelines/methods``, and what regularisers do with their defaults."""
    found: dict[str, tuple[str, Stepped]] = {}
    phases = [(f"{name}-{given.name}", name, given, index) for name in METHODS for index, given in _steps(name)]
    defaults = [(case.key, None, case.phase, None) for case in CASES if case.phase.training.epochs and not case.before]
    for key, name, given, index in (*phases, *defaults):
        listed = [(one, chosen.model_dump(exclude_unset=True)) for one, chosen in given.regularisers]
        needing = any(REGISTRY[one].declare(chosen).needs for one, chosen in given.regularisers)
        changes = {"dropout": TRAINING.dropout, "batch_size": 4, "accumulation": 1, "max_steps": 6}
        options: dict[str, Any] = {"phase": given.name, "validation": given.data.split < 1, "masked_lm": True}
        options["training"] = given.training.model_copy(update=changes)
        if name is not None and names_layers(name):
            options |= {"source": six_layers()}
        before = method(name).phases[:index] if name is not None and needing else ()
        same = json.dumps([_switches(listed), given.training.optimizer], sort_keys=True)
        found.setdefault(same, (key, Stepped(listed, options, before)))
    return dict(found.values())


def _steps(name: str) -> list[tuple[int, Phase]]:
    return [(index, given) for index, given in enumerate(method(name).phases) if given.training.epochs]


STEPPED = _declared() | {name: Stepped(listed, options) for name, (listed, options) in OPTIONS.items()}


@pytest.mark.parametrize("name", STEPPED)
def test_no_method_reads_from_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it send anything there from memory that is not pinned, or mix what is on the host with what is not.

    The third and the fourth step are looked at, up to the first that reads a value: there is none to go on with.
    """
    unreadable(monkeypatch)
    bench = STEPPED[name].bench(UNREADABLE)
    loop = bench.loop()
    # DPS learns in its first step how long its blocks are, which then is to be the last of a block.
    first = 1 if any(one == "dps" for one, _ in STEPPED[name].listed) else 2
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
    assert bool(waits.found) == (name in WAITING), waits.found


def test_the_released_clip_of_weight_mixup_does_not_read_the_scale_of_half_precision() -> None:
    """Its attention and pretrained copies are in the clip norm, and no optimiser has unscaled their gradients."""
    name = "weight_mixup_released-finetune"
    half = STEPPED[name].options["training"].model_copy(update={"precision": "fp16", "optimizer": "adamw"})
    stepped = replace(STEPPED[name], options={**STEPPED[name].options, "training": half})
    bench = stepped.bench(torch.device("cpu"))
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

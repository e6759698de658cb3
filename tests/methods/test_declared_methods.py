"""Every YAML of ``pipelines/methods`` on a tiny encoder without a masked-LM head."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache

import pytest
import torch

from regft_core.catalogue import KINDS
from regft_core.hooks import compose
from regft_core.hooks.declare import Handed
from regft_core.hooks.registry import discover
from regft_core.runs.training_run import build
from regft_core.schema.method import declared_fit
from tests.methods.cases import task
from tests.methods.chain import METHODS, Ran, Runner, each_make, method, names_layers, six_layers
from tests.methods.harness import same, source_of

REGISTRY = discover()
#: Methods of which a later phase takes something from an earlier one beside the weights to start from.
TAKING = [
    name
    for name in METHODS
    if any(REGISTRY[r].declare(options).needs for given in method(name).phases for r, options in given.regularisers)
]
#: As many steps as the longest interval at which a method of the repository does something.
STEPS = 4


def kind_of(name: str) -> str:
    """The first kind of task that no regulariser refuses: not classes where it is for values, or for several labels."""
    return next(
        kind
        for kind in KINDS.names()
        if not any(
            REGISTRY[regulariser].check_task(options, task(kind))
            for given in method(name).phases
            for regulariser, options in given.regularisers
        )
    )


def own_runner(name: str) -> Runner:
    own, source = method(name).config.model, six_layers() if names_layers(name) else source_of("bert")
    read = {"pooling": own.get("pooling", "head"), "separately": own.get("pairs") == "separately"}
    return Runner(source, pair=True, kind=kind_of(name), **read)


@cache
def run(name: str) -> dict[str, Ran]:
    return own_runner(name).run(method(name).phases, steps=STEPS)


@pytest.mark.parametrize("name", each_make())
def test_it_runs_costs_what_it_declares_and_leaves_a_plain_model(name: str) -> None:
    for ran in run(name).values():
        entries = compose.entries(REGISTRY, ran.phase.regularisers)
        declared = compose.active(entries)
        fit = declared_fit(entries)
        # A phase that had nothing to do fitted nothing either.
        assert len(ran.fits) == sum(member.skipped is None for member in ran.members)
        assert ran.fits == [(fit.forward, fit.backward)] * len(ran.fits), ran.phase.name
        for member in ran.members:
            done = member.progression
            if member.skipped is not None or not done.batches:
                continue
            ratio = (done.forward_passes + 2 * done.backward_passes) / done.batches / 3
            assert ratio == pytest.approx(ran.phase.ratio(REGISTRY)), ran.phase.name
            forward = max([entry.declares.description.cost.forward for entry in declared], default=1.0)
            assert done.forward_passes / done.batches >= forward - 1e-9
    weights = run(name)["finetune"].handed.weights
    own = method(name).finetune
    # What answers at a mask has the checkpoint's masked-LM head for a head.
    kept = [one for one in own.regularisers if one[0] == "verbaliser"]
    given = replace(own, regularisers=tuple(kept))
    trainee, _ = build(own_runner(name).inputs(replace(given, start="checkpoint"), run(name) if kept else {}))
    assert set(weights) == set(trainee.model.state_dict())
    assert all(value.isfinite().all() for value in weights.values())


@pytest.mark.parametrize("name", [param for param in each_make() if param.values[0] in TAKING])
def test_what_is_handed_over_is_what_the_next_phase_uses(name: str) -> None:
    """Another state makes another result; the same one, read back, the same."""
    done = run(name)
    final, weights = done["finetune"].phase, done["finetune"].handed.weights
    assert same(own_runner(name).run_phase(final, done).handed.weights, weights)
    declared = [REGISTRY[regulariser].declare(options) for regulariser, options in final.regularisers]
    for where, what in {where: what for each in declared for where, what in each.needs.items()}.items():
        given = done[where].handed
        assert given.state or what in ("weights", "answers", "hidden")
        if given.state or what in ("answers", "hidden"):
            other = copy(done[where])
            full = own_runner(name).inputs(final, done).handed[where]
            state = {n: shifted(v) for n, v in given.state.items()}
            learned = (None if one is None else shifted(one) for one in (full.answers, full.hidden))
            other.handed = Handed(given.key, state, given.weights, *learned)
            moved = own_runner(name).run_phase(final, {**done, where: other}).handed.weights
            assert not same(moved, weights), f"{where} is handed over and not used"


def shifted(value: torch.Tensor) -> torch.Tensor:
    """Other numbers of the same shape; what is a name or a count (a scalar) stays."""
    if value.dim() == 0:
        return value
    if not value.is_floating_point():  # a mask
        return value.logical_not().to(value.dtype)
    return value.flip(0) * 0.7 + 0.1

"""The trials of each arm: which values are tried.

A trial is a set of dotted settings (``training.learning_rate``, ``regularisers.hype.scale``,
``phases.search.repeat.times``). They are laid over the method as the strongest layer; ``training.*`` of a method with
phases is laid over the shared protocol instead, which its phases then change.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Any

from regft_core.errors import ConfigError
from regft_core.schema.method import Method
from regft_core.schema.params import TuningConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.document import KeyPath
from regft_core.settings.layers import from_dotted, lay, shared_sections

#: Dotted settings of one trial, in the order of the file.
Trial = dict[str, Any]
#: Seed of the draw of ``tuning.trials`` from a grid: arms with equal grids get equal trials.
_DRAW = 0


def trials_of(tuning: TuningConfig | None, method: Method) -> list[Trial]:
    """The trials of an arm, in order; empty where nothing of it is tuned.

    ``values`` are for arms that take optimiser steps; an arm's own are for it whatever it does.
    """
    if tuning is None:
        return []
    own = tuning.methods.get(method.name)
    if own is None and method.of is not None:
        own = _inherited(tuning.methods.get(method.of), method.flipped)
    if isinstance(own, list):
        return [dict(trial) for trial in own]
    if own is not None and not own:
        return []
    shared = tuning.values if any(phase.training.epochs for phase in method.phases) else {}
    grid = {**shared, **(own or {})}
    if not grid:
        return []
    every = [dict(zip(grid, values)) for values in product(*grid.values())]
    if tuning.trials is None or tuning.trials >= len(every):
        return every
    return [every[index] for index in sorted(random.Random(_DRAW).sample(range(len(every)), tuning.trials))]


def _inherited(
    own: Mapping[str, Any] | list[Trial] | None, flipped: Collection[str]
) -> dict[str, Any] | list[Trial] | None:
    """Return the trials of an arm for a control that it declares: without the settings that the control flips.

    None where nothing is left of an arm's own values: those for every arm are tried then.
    """

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in values.items() if not any(f"{k}.".startswith(f"{one}.") for one in flipped)}

    if not isinstance(own, list):
        return (kept(own) or None) if own else None if own is None else {}
    trials = [kept(trial) for trial in own]
    return [trial for index, trial in enumerate(trials) if trial and trial not in trials[:index]]


def tuned_method(
    builder: MethodBuilder, name: str, task: str | None, values: Mapping[str, Any], at: KeyPath = ("tuning",)
) -> tuple[Method, TrainingConfig]:
    """Return a method (on a task) with tuned values, and the protocol that its phases start from.

    ``at`` is where ``params.yaml`` names the values. Raises ConfigError for values that do not fit.
    """
    document, shared = builder.document(name, task), builder.shared(task)
    assert document is not None
    phased = isinstance(document.data.get("phases"), dict)
    protocol = {key: value for key, value in values.items() if phased and key.startswith("training.")}
    place = builder.params.place(at)
    if protocol:
        shared = lay(shared, from_dotted(protocol, place))
    training, _, problems = shared_sections(shared)
    if training is None:
        raise ConfigError(problems)
    rest = from_dotted({key: value for key, value in values.items() if key not in protocol}, place)
    return builder.build(name, lay(document, rest), task, tuned=shared), training


def budget_lines(tuning: TuningConfig, methods: Iterable[Method]) -> list[str]:
    """The dry run's lines: how many trials each arm gets, and what chooses."""
    if tuning.selection != "split":
        judge = "the dev set, as published, once for all seeds: scores on it are optimistic"
    else:
        part = f"{tuning.folds} folds of" if tuning.folds else f"rows set aside ({1 - tuning.split:.0%}) of"
        judge = f"{part} a run's training rows, which it then trains on as a whole; each seed chooses"
    lines = [f"tuning: evaluated by {judge}"]
    for method in methods:
        trials = trials_of(tuning, method)
        keys = list(dict.fromkeys(key for trial in trials for key in trial))
        what = f"{len(trials)} trials over {', '.join(keys)}" if trials else "no trials"
        lines.append(f"  {method.name}: {what}")
    return lines

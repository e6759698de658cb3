"""The trials of each arm: which values are tried, and their errors.

A trial is a set of dotted settings (``training.learning_rate``, ``regularisers.hype.scale``,
``phases.search.repeat.times``). They are laid over the method as the strongest layer; ``training.*`` of a method with
phases is laid over the shared protocol instead, which its phases then change.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.schema.method import FINETUNE, Method
from regft_core.schema.training import TrainingConfig
from regft_core.schema.tuning import TuningConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.derived import regularisers_of
from regft_core.settings.document import KeyPath
from regft_core.settings.layers import shared_sections
from regft_core.settings.laying import from_dotted, lay

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


def check_tuning(
    tuning: TuningConfig, methods: Mapping[str, Method], listed: Collection[str], builder: MethodBuilder
) -> tuple[list[Problem], dict[str, list[Method]]]:
    """Find arms that are not ``listed``, values that do not fit or change nothing, unequal numbers of trials.

    Returns the problems, and the method of every trial.
    """
    document = builder.params
    problems = []
    for name in tuning.methods:
        if name not in listed:
            at, message = ("tuning", "methods", name), f"method '{name}' is not listed under methods"
            problems.append(document.problem("not-listed", at, message, "list it, or remove it"))
    trainings: dict[str, int] = {}
    tried: dict[str, list[Method]] = {}
    for name, method in methods.items():
        trials = trials_of(tuning, method)
        wrong, tried[name] = _check_trials(tuning, method, trials, builder)
        problems += wrong
        if trials:
            # Trials that differ in a stepless phase only share their training.
            stepping = [[phase for phase in one.phases if phase.training.epochs] for one in tried[name]]
            trainings[name] = len(set(map(repr, stepping)))
        own = tuning.methods.get(name)
        if trials and tuning.trials is not None and len(trials) < tuning.trials and not isinstance(own, list):
            message = f"'{name}' has {len(trials)} combinations of values, fewer than tuning.trials {tuning.trials}"
            hint = "give it more values, or lower trials"
            problems.append(document.problem("too-few-values", ("tuning", "trials"), message, hint))
    if tuning.selection == "split" and len(set(trainings.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in trainings.items())
        message = f"methods have different numbers of trials ({counts}), so the best of them cannot be compared"
        hint = f"set tuning.trials: {min(trainings.values())}, or give the others more values"
        problems.append(document.problem("unequal-trials", ("tuning",), message, hint))
    return problems, tried


_HINT = "write training.<key>, regularisers.<regulariser>.<option>, or phases.<phase>. and one of these"


def _check_trials(
    tuning: TuningConfig, method: Method, trials: list[Trial], builder: MethodBuilder
) -> tuple[list[Problem], list[Method]]:
    """Return what is wrong with the trials of a method, and the method of each."""
    document, name = builder.params, method.name
    file = builder.document(name)
    at: KeyPath = ("tuning", "methods", name) if name in tuning.methods else ("tuning", "values")
    problems = []
    for key in dict.fromkeys(key for trial in trials for key in trial):
        if not _is_setting(key, file.data if file is not None else {}):
            place = next((p for p in ((*at, key), ("tuning", "values", key)) if p in document.places), at)
            message = f"'{key}' is not a setting of method '{name}'"
            problems.append(document.problem("not-tunable", place, message, _HINT))
    methods: list[Method] = []
    seen: dict[str, Trial] = {}
    for trial in trials if not problems else ():
        try:
            tuned, training = tuned_method(builder, name, None, trial, at)
        except ConfigError as error:
            return error.problems, methods
        methods.append(tuned)
        earlier = seen.setdefault(f"{tuned.phases!r} {training!r}", trial)
        if earlier is not trial:
            one, other = (", ".join(f"{key} {value}" for key, value in values.items()) for values in (trial, earlier))
            message = f"'{name}' would be the same run with {one} as with {other}"
            hint = "its file sets that value itself: name it under phases.<phase>.training, or keep one of the two"
            problems.append(document.problem("same-trial", at, message, hint))
    return problems, methods


def _is_setting(key: str, data: Mapping[str, Any]) -> bool:
    """Whether a dotted key is a setting of the method whose file has ``data``."""
    phase, parts, phases = FINETUNE, key.split("."), data.get("phases")
    phased = parts[0] == "phases"
    if phased:
        if not isinstance(phases, dict) or len(parts) < 3 or not isinstance(phases.get(parts[1]), dict):
            return False
        phase, parts = parts[1], parts[2:]
    if parts[0] == "regularisers":
        return len(parts) >= 3 and (phased or phases is None) and parts[1] in dict(regularisers_of(data)).get(phase, {})
    return (parts[0] == "training" and len(parts) in (2, 3)) or (
        parts[0] in ("repeat", "data") and len(parts) == 2 and phased
    )


def budget_lines(tuning: TuningConfig, methods: Iterable[Method]) -> list[str]:
    """The dry run's lines: how many trials each arm gets, and what chooses."""
    apart = f"rows set aside ({1 - tuning.split:.0%} of a run's training rows)"
    if tuning.folds is not None:
        apart = f"{tuning.folds} folds of a run's training rows"
    judge = f"{apart}, then trained on all rows"
    if tuning.selection != "split":
        judge = "the dev set, as published: scores on it are optimistic"
    each = "each seed chooses" if tuning.judged_by_seed else "one choice per cell, by the mean over seeds"
    lines = [f"tuning: judged by {judge}; {each}"]
    for method in methods:
        trials = trials_of(tuning, method)
        keys = list(dict.fromkeys(key for trial in trials for key in trial))
        what = f"{len(trials)} trials over {', '.join(keys)}" if trials else "no trials"
        lines.append(f"  {method.name}: {what}")
    return lines

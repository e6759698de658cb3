"""The phases of a method: options validated against its regularisers, the protocol with the phase's own values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema import DropoutConfig
from regft_core.schema.method import Lent, Method, Phase, Registry
from regft_core.schema.methods import MethodConfig
from regft_core.schema.training import MatchConfig, StepsFactor, TrainingConfig, scaled
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.layers import lay
from regft_core.settings.validate import validate

#: The factor of the epochs that a method to match comes to; raises ConfigError.
Matched = Callable[[str], float]
#: The task whose rows a phase trains on (None: the cell's own) -> ``params.yaml`` as that task changes it.
SharedFor = Callable[[str | None], Document]
#: A method that stands in for a phase, by name; raises ConfigError.
Lender = Callable[[str], Method]
Options = tuple[tuple[str, BaseModel], ...]


def build_phases(
    config: MethodConfig,
    document: Document,
    registry: Registry,
    shared_for: SharedFor,
    matched: Matched,
    lender: Lender,
    problems: list[Problem],
) -> tuple[Phase, ...]:
    """Return the phases of the method that ``document`` describes; add what is wrong to ``problems``."""
    phases: list[Phase] = []
    earlier: list[str] = []
    for name, phase in config.by_phase().items():
        path = config.path(name)
        if phase.method is not None:
            try:
                phases += lent_phases(lender(phase.method), name)
            except ConfigError as error:
                problems += error.problems
            earlier.append(name)
            continue
        options = _options(phase.regularisers, document, path, registry, problems)
        problems += _lacking_phases(options, name, earlier, document, path, registry)
        start = ["checkpoint", *earlier][-1] if phase.start == "previous" else phase.start
        earlier.append(name)
        training = _protocol(document, path, shared_for(phase.data.task), matched, problems)
        if training is not None:
            explicit = {key: getattr(training, key) for key in phase.training if key != "steps_factor"}
            if "dropout" in explicit:
                explicit["dropout"] = DropoutConfig.model_validate(phase.training["dropout"])
            model: dict[str, Any] = dict(phase.model or {})  # type: ignore[arg-type]
            settled = name, phase.data, start, phase.repeat, phase.seed, options, training, explicit
            phases.append(Phase(*settled, model, averages_runs=phase.refit == "mean_of_runs"))
    return tuple(phases)


def lent_phases(method: Method, name: str) -> Iterator[Phase]:
    """Yield the phases of a method that stand in for the phase ``name``, the last under that name."""
    prefix = f"{name}-"
    for phase in method.phases:
        inner = phase.lent or Lent(method.name, phase.name, "", method.config.model)
        yield replace(
            phase,
            name=name if phase is method.finetune else prefix + phase.name,
            start=phase.start if phase.start == "checkpoint" else prefix + phase.start,
            lent=replace(inner, prefix=prefix + inner.prefix),
        )


def _protocol(
    document: Document, path: KeyPath, shared: Document, matched: Matched, problems: list[Problem]
) -> TrainingConfig | None:
    """Return the shared protocol with the values that stand below ``path``; None where one is wrong."""
    laid = lay(shared, document, (*path, "training"), "training")
    values = dict(laid.data["training"])
    factor = {"steps_factor": values.pop("steps_factor")} if "steps_factor" in values else None
    training, wrong = validate(TrainingConfig, replace(laid, data={"training": values}), ("training",))
    problems += wrong
    if factor is None:
        return training
    steps, wrong = validate(StepsFactor, replace(laid, data={"training": factor}), ("training",))
    problems += wrong
    if steps is None or training is None:
        return None
    try:
        number = steps.steps_factor
        return scaled(training, matched(number.match) if isinstance(number, MatchConfig) else number)
    except ConfigError as error:
        problems += error.problems
    except ValueError as error:
        at, hint = (*path, "training", "steps_factor"), "change it, or the epochs that it multiplies"
        problems.append(document.problem("bad-length", at, str(error), hint))
    return None


def _options(
    names: Iterable[str], document: Document, path: KeyPath, registry: Registry, problems: list[Problem]
) -> Options:
    """Return the validated options of the regularisers that stand below ``path``, by name."""
    options: list[tuple[str, BaseModel]] = []
    for name in names:
        at = (*path, "regularisers", name)
        if name not in registry:
            hint = suggestion(name, sorted(registry), "there are")
            problems.append(document.problem("unknown-regulariser", at, f"unknown regulariser '{name}'", hint))
            continue
        try:
            values, wrong = validate(registry[name].Config, document, at)
        except ConfigError as broken:
            values, wrong = None, broken.problems
        problems += wrong
        options += [(name, values)] if values is not None else []
    return tuple(sorted(options, key=lambda item: item[0]))  # their order in the file has no meaning


def _lacking_phases(
    options: Options, phase: str, earlier: Collection[str], document: Document, path: KeyPath, registry: Registry
) -> Iterator[Problem]:
    """Yield the regularisers that take something from a phase that does not run before theirs."""
    for name, values in options:
        for needed in registry[name].declare(values).needs:
            if needed not in earlier:
                message = f"'{name}' takes something from the phase '{needed}', which does not run before '{phase}'"
                hint = suggestion(needed, earlier, "phases before it") if earlier else "add that phase before it"
                yield document.problem("phase-not-before", (*path, "regularisers", name), message, hint)

"""The phases of a method: options validated against its regularisers, the protocol with the phase's own values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from pydantic import BaseModel

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema import DropoutConfig
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import FINETUNE, Method, Phase, Registry
from regft_core.schema.methods import MethodConfig, PhaseConfig
from regft_core.schema.sources import paths
from regft_core.schema.training import MatchConfig, StepsFactor, TrainingConfig, scaled
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.laying import lay
from regft_core.settings.validate import validate

#: The factor of the epochs that a method to match comes to; raises ConfigError.
Matched = Callable[[str], float]
#: The task whose rows a phase trains on (None: the cell's own) -> ``params.yaml`` as that task changes it.
SharedFor = Callable[[str | None], Document]
Options = tuple[tuple[str, BaseModel], ...]


def phase_configs(config: MethodConfig) -> dict[str, PhaseConfig]:
    """Return the phases of a method by name; a method in the short form has one."""
    if config.phases is not None:
        return dict(config.phases)
    return {FINETUNE: PhaseConfig(regularisers=config.regularisers, training=config.training)}


def phase_path(config: MethodConfig, name: str) -> KeyPath:
    """Return where the YAML of a method says what a phase is."""
    return ("phases", name) if config.phases is not None else ()


def build_phases(
    config: MethodConfig, document: Document, registry: Registry, shared_for: SharedFor, matched: Matched
) -> tuple[tuple[Phase, ...] | None, list[Problem]]:
    """Return the phases of the method that ``document`` describes, None where one is wrong, and all problems."""
    phases: list[Phase] = []
    problems: list[Problem] = []
    earlier: list[str] = []
    whole = True
    previous = "checkpoint"
    for name, phase in phase_configs(config).items():
        path = phase_path(config, name)
        options, wrong = options_of(phase.regularisers, document, path, registry)
        problems += wrong
        problems += _lacking_phases(options, name, earlier, document, path, registry)
        earlier.append(name)
        training, wrong = _protocol(document, path, shared_for(phase.data.task), matched)
        problems += wrong
        start, previous = previous if phase.start == "previous" else phase.start, name
        whole = whole and training is not None and len(options) == len(phase.regularisers)
        if training is not None:
            explicit = {key: getattr(training, key) for key in phase.training if key != "steps_factor"}
            if "dropout" in explicit:
                explicit["dropout"] = DropoutConfig.model_validate(phase.training["dropout"])
            phases.append(Phase(name, phase.data, start, phase.repeat, phase.seed, options, training, explicit))
    return tuple(phases) if whole else None, problems


def _protocol(
    document: Document, path: KeyPath, shared: Document, matched: Matched
) -> tuple[TrainingConfig | None, list[Problem]]:
    """Return the shared protocol with the values that stand below ``path``, and what is wrong with them."""
    laid = lay(shared, document, (*path, "training"), ("training",))
    values = dict(laid.data["training"])
    factor = {"steps_factor": values.pop("steps_factor")} if "steps_factor" in values else None
    training, problems = validate(TrainingConfig, Document({"training": values}, laid.places, laid.file), ("training",))
    if factor is None:
        return training, problems
    given, wrong = validate(StepsFactor, Document({"training": factor}, laid.places, laid.file), ("training",))
    problems += wrong
    if given is None or training is None:
        return None, problems
    number = given.steps_factor
    if isinstance(number, MatchConfig):
        try:
            number = matched(number.match)
        except ConfigError as error:
            return None, problems + error.problems
    try:
        return scaled(training, number), problems
    except ValueError as error:
        at, hint = (*path, "training", "steps_factor"), "change it, or the epochs that it multiplies"
        return None, [*problems, document.problem("bad-length", at, str(error), hint)]


def options_of(
    names: Iterable[Any], document: Document, path: KeyPath, registry: Registry
) -> tuple[Options, list[Problem]]:
    """Return the validated options of regularisers that stand below ``path``, by name, and all problems."""
    options: list[tuple[str, BaseModel]] = []
    problems: list[Problem] = []
    for name in names:
        at = (*path, "regularisers", name)
        if name not in registry:
            hint = suggestion(str(name), sorted(registry), "there are")
            problems.append(document.problem("unknown-regulariser", at, f"unknown regulariser '{name}'", hint))
            continue
        try:
            values, wrong = validate(registry[name].Config, document, at)
        except ConfigError as broken:
            problems += broken.problems
            continue
        problems += wrong
        options += [(name, values)] if values is not None else []
    # Their order in the file has no meaning.
    return tuple(sorted(options, key=lambda item: item[0])), problems


def options_problems(document: Document, registry: Registry) -> list[Problem]:
    """Return what is wrong with the options of a method whose file is also wrong in other places."""
    problems = []
    phases = document.data.get("phases")
    places: list[tuple[KeyPath, Any]] = [((), document.data)]
    places += [(("phases", name), phase) for name, phase in phases.items()] if isinstance(phases, dict) else []
    for path, part in places:
        regularisers = part.get("regularisers") if isinstance(part, dict) else None
        if isinstance(regularisers, dict):
            problems += options_of(regularisers, document, path, registry)[1]
    return problems


def _lacking_phases(
    options: Options, phase: str, earlier: Collection[str], document: Document, path: KeyPath, registry: Registry
) -> list[Problem]:
    problems = []
    for name, values in options:
        for needed in registry[name].declare(values).needs:
            if needed not in earlier:
                message = f"'{name}' takes something from the phase '{needed}', which does not run before '{phase}'"
                hint = suggestion(needed, earlier, "phases before it") if earlier else "add that phase before it"
                problems.append(document.problem("phase-not-before", (*path, "regularisers", name), message, hint))
    return problems


def source_problems(config: MethodConfig, document: Document) -> list[Problem]:
    """Return the sources of values that the file does not set."""
    known = paths(document.data)
    return [
        document.problem("unknown-source", ("sources", path), "this file sets no such value", suggestion(path, known))
        for path in config.sources
        if path not in known
    ]


def encoder_problems(method: Method, document: Document, shared: EncoderConfig) -> list[Problem]:
    """Return what in a method's own ``model`` does not go with the ``shared`` section ``model``."""
    problem = method.encoder_problem(shared)
    at: KeyPath = ("model", "pairs") if "pairs" in method.config.model else ("model",)
    what = "with the shared section 'model' of params.yaml"
    return [document.problem("model-conflict", at, f"{what}: {problem}")] if problem else []

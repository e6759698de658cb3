"""From a method's YAML to phases with validated options, and the method's errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic import BaseModel

from regft_core.errors import Problem
from regft_core.names import suggestion
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import FINETUNE, Method, Phase, Registry
from regft_core.schema.methods import MethodConfig, PhaseConfig
from regft_core.schema.sources import paths
from regft_core.schema.training import MatchConfig, TrainingConfig
from regft_core.settings.files import METHODS, missing
from regft_core.settings.messages.explain import validate
from regft_core.settings.yaml.document import Document, KeyPath

#: What a phase that names another method to match comes to, as a factor of the epochs.
Matched = Callable[[str], float | None]
#: The task whose rows a phase trains on (None: the cell's own) -> the protocol before the method changes anything.
SharedFor = Callable[[str | None], TrainingConfig]
#: Whether there is an arm of a name: a file, an arm with ``base``, or a control that an arm declares.
Knows = Callable[[str], bool]


def phase_configs(config: MethodConfig) -> dict[str, PhaseConfig]:
    """The phases of a method by name; a method in the short form has one."""
    if config.phases is not None:
        return dict(config.phases)
    return {FINETUNE: PhaseConfig(regularisers=config.regularisers, training=config.training)}


def phase_path(config: MethodConfig, name: str) -> KeyPath:
    """Where the YAML of a method says what a phase is."""
    return ("phases", name) if config.phases is not None else ()


def build_method(
    root: Path,
    name: str,
    config: MethodConfig,
    document: Document,
    registry: Registry,
    shared_for: SharedFor,
    matched: Matched,
    knows: Knows,
    *,
    exact: bool = True,
) -> tuple[Method | None, list[Problem]]:
    """Validate a method's options against its regularisers.

    Args:
        shared_for: the task whose rows a phase trains on (None: the cell's own) -> the protocol that the phase's
            values are laid over.
        exact: whether that is what the user wrote; false when defaults stand in it for wrong values.
        matched: factor of the epochs that matches another method's compute; None when that method is wrong.
        knows: whether there is an arm of a name.

    Returns:
        the method, None when it cannot be built, and all problems.
    """
    problems = [*_check_names(root, name, config, document, knows), *_check_sources(config, document)]
    phases: list[Phase] = []
    complete = True
    previous = "checkpoint"
    for phase_name, phase in phase_configs(config).items():
        training = shared_for(phase.data.task)
        path = phase_path(config, phase_name)
        options, wrong = _options(phase.regularisers, document, (*path, "regularisers"), registry)
        problems += wrong
        problems += _check_needs(options, phase_name, [p.name for p in phases], document, path, registry)
        factor = None
        if isinstance(phase.training.steps_factor, MatchConfig):
            factor, wrong = _factor(phase.training.steps_factor, name, root, document, path, matched, knows)
            problems += wrong
            complete = complete and factor is not None
        complete = complete and len(options) == len(phase.regularisers)
        start = previous if phase.start == "previous" else phase.start
        if too_long := phase.training.length_problem(training, factor):
            if exact:
                at = (*path, "training", "steps_factor")
                problems.append(
                    document.problem("bad-length", at, too_long, "change it, or the epochs that it multiplies")
                )
            complete = False
        resolved = training if too_long else phase.training.apply(training, factor)
        explicit = {key: getattr(resolved, key) for key in phase.training.model_fields_set if key != "steps_factor"}
        if phase.training.dropout is not None:
            explicit["dropout"] = phase.training.dropout
        sorted_options = tuple(sorted(options, key=lambda item: item[0]))
        phases.append(
            Phase(phase_name, phase.data, start, phase.repeat, phase.seed, sorted_options, resolved, explicit)
        )
        previous = phase_name
    if problems or not complete:
        return None, problems
    return Method(name, config, tuple(phases)), problems


def check_parts(
    root: Path, name: str, config: MethodConfig, document: Document, registry: Registry, knows: Knows
) -> list[Problem]:
    """What can be said of a method whose file is wrong somewhere; ``config`` is incomplete (``parts``)."""
    problems = [*_check_names(root, name, config, document, knows), *_check_sources(config, document)]
    places: list[tuple[KeyPath, MethodConfig | PhaseConfig]] = [((), config)]
    if config.known("phases") and config.phases is not None:
        places += [(("phases", phase), entry) for phase, entry in config.phases.items()]
    earlier: list[str] = []
    for path, place in places:
        options: list[tuple[str, BaseModel]] = []
        if place.known("regularisers"):
            options, wrong = _options(place.regularisers, document, (*path, "regularisers"), registry)
            problems += wrong
        if path:
            problems += _check_needs(options, str(path[-1]), earlier, document, path, registry)
            earlier.append(str(path[-1]))
        factor = (
            place.training.steps_factor if place.known("training") and place.training.known("steps_factor") else None
        )
        if isinstance(factor, MatchConfig) and factor.known("match"):
            problems += _unknown_match(factor, name, root, document, path, knows)
    return problems


def encoder_problems(method: Method, model: EncoderConfig, document: Document) -> list[Problem]:
    """What in the method's own ``model`` does not go with the shared section ``model``."""
    problem = method.encoder_problem(model)
    if not problem:
        return []
    own = method.config.model.model_fields_set if method.config.model is not None else ()
    path: KeyPath = ("model", "pairs") if "pairs" in own else ("model",)
    return [document.problem("model-conflict", path, f"with the shared section 'model' of params.yaml: {problem}")]


def _options(
    names: Iterable[str], document: Document, path: KeyPath, registry: Registry
) -> tuple[list[tuple[str, BaseModel]], list[Problem]]:
    options: list[tuple[str, BaseModel]] = []
    problems: list[Problem] = []
    for regulariser in names:
        at = (*path, regulariser)
        if regulariser not in registry:
            hint = suggestion(regulariser, sorted(registry), "there are")
            if broken := getattr(registry, "broken", {}).get(regulariser):
                problems += broken.problems
                continue
            problems.append(document.problem("unknown-regulariser", at, f"unknown regulariser '{regulariser}'", hint))
            continue
        found, wrong = validate(registry[regulariser].Config, document, at)
        problems += wrong
        if found is not None:
            options.append((regulariser, found))
    return options, problems


def _check_needs(
    options: list[tuple[str, BaseModel]],
    phase: str,
    earlier: list[str],
    document: Document,
    path: KeyPath,
    registry: Registry,
) -> list[Problem]:
    problems = []
    for regulariser, values in options:
        for needed in registry[regulariser].declare(values).needs:
            if needed not in earlier:
                message = (
                    f"'{regulariser}' takes something from the phase '{needed}', which does not run before '{phase}'"
                )
                hint = suggestion(needed, earlier, "phases before it") if earlier else "add that phase before it"
                problems.append(
                    document.problem("phase-not-before", (*path, "regularisers", regulariser), message, hint)
                )
    return problems


def _factor(
    match: MatchConfig, name: str, root: Path, document: Document, path: KeyPath, matched: Matched, knows: Knows
) -> tuple[float | None, list[Problem]]:
    wrong = _unknown_match(match, name, root, document, path, knows)
    return (None, wrong) if wrong else (matched(match.match), [])


def _unknown_match(
    match: MatchConfig, name: str, root: Path, document: Document, path: KeyPath, knows: Knows
) -> list[Problem]:
    at = (*path, "training", "steps_factor", "match")
    if match.match == name:
        return [
            document.problem("refers-to-itself", at, "a method cannot match its own compute", "name another method")
        ]
    problem = None if knows(match.match) else missing(root, METHODS, match.match, document, at, without=name)
    return [] if problem is None else [problem]


def _check_names(root: Path, name: str, config: MethodConfig, document: Document, knows: Knows) -> list[Problem]:
    problems = []
    for key, what in (
        ("control_for", "its own control"),
        ("variant_of", "a variant of itself"),
        ("combines", "an ingredient of itself"),
    ):
        for i, target in enumerate(getattr(config, key) if config.known(key) else ()):
            at = (key, i) if (key, i) in document.lines else (key,)
            if target == name:
                problems.append(
                    document.problem(
                        "refers-to-itself", at, f"a method cannot be {what}", "name the method it belongs to"
                    )
                )
            elif not knows(target) and (problem := missing(root, METHODS, target, document, at, without=name)):
                problems.append(problem)
    return problems


def _check_sources(config: MethodConfig, document: Document) -> list[Problem]:
    """Sources of what the file does not set."""
    known = paths(document.data)
    return [
        document.problem("unknown-source", ("sources", path), "this file sets no such value", suggestion(path, known))
        for path in (config.sources if config.known("sources") else ())
        if path not in known
    ]


def method_factor(method: Method, training: TrainingConfig, registry: Registry) -> float:
    """Compute of ``method`` in units of plain fine-tuning under the shared protocol ``training``.

    Counted in epochs: every phase costs epochs x share of the rows x members x passes of a step; what it fits
    without steps goes over the same rows, and costs its passes in place of epochs x passes of a step. Where that
    protocol counts steps (``max_steps``) a phase costs its own number over the protocol's, whatever share of the
    rows they are drawn from, in batches of the protocol's size.

    Raises ValueError where the two cannot be compared (:func:`incomparable`).
    """
    if reason := incomparable(method, training, registry):
        raise ValueError(f"{method.name}: {reason}")
    total = 0.0
    for phase in method.phases:
        fitted = phase.fit_ratio(registry) / training.epochs * phase.data.split
        total += (_length(phase, training) * phase.ratio(registry) + fitted) * phase.members
    return total


def _length(phase: Phase, training: TrainingConfig) -> float:
    """Rows that the steps of one member go over, relative to plain fine-tuning under ``training``."""
    own = phase.training
    if own.epochs == 0:  # no steps, whatever number of them the shared protocol has
        return 0.0
    if own.max_steps is None or training.max_steps is None:
        return own.epochs / training.epochs * phase.data.split
    batches = own.batch_size * own.accumulation / (training.batch_size * training.accumulation)
    return own.max_steps / training.max_steps * batches


def incomparable(method: Method, training: TrainingConfig, registry: Registry) -> str:
    """Why no one factor says what a method costs next to ``training``, for every number of rows; empty where one does.

    Passes over the rows and counted steps are worth each other at one number of rows only.
    """
    counted = training.max_steps is not None
    if counted and any(phase.fit_ratio(registry) > 0 for phase in method.phases):
        return (
            "what it fits without steps costs passes over the rows, and how many steps those are worth differs by size"
        )
    for phase in method.phases:
        if phase.training.epochs and (phase.training.max_steps is not None) != counted:
            own, shared = ("epochs", "steps") if counted else ("steps", "epochs")
            return f"its phase '{phase.name}' counts {own}, and how many {shared} those are differs by size"
    return ""

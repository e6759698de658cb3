"""Errors of methods beyond their files: layers for names that are not there, trials, parts that do not fit a task."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from regft_core.errors import ConfigError, Problem
from regft_core.hooks import compose
from regft_core.names import listing, suggestion
from regft_core.schema.method import Method
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import EncoderConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.derived import phases_of, regularisers_of
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.layers import described, lay
from regft_core.settings.params_errors import check_model, unlisted
from regft_core.settings.project import Trial, layer_of, trials_of, tuned_method
from regft_core.settings.validate import Found, validate
from regft_core.settings.yaml_paths import METHODS, find, method_file, missing


def check_layers(builder: MethodBuilder, params: Params, document: Document) -> Iterator[Problem]:
    """Yield names in ``task_settings`` and ``method_settings`` that are not listed, and what their base lacks."""
    for task in params.task_settings:
        if task not in params.grid.tasks:
            yield unlisted(params, "task", task, document, ("task_settings", task))
    places: list[tuple[KeyPath, str]] = [(("method_settings", name), name) for name in params.method_settings]
    for task, settings in params.task_settings.items():
        places += [(("task_settings", task, "methods", name), name) for name in settings.methods]
    for at, name in places:
        base = builder.base(name)
        if name not in params.methods:
            yield unlisted(params, "method", name, document, at)
        if base == name:
            yield from added_parts(builder, name, document, at)
        elif find(builder.root, METHODS, name) is not None:
            message = f"'{name}' has a file of its own, {method_file(name)}, so it needs no base"
            yield document.problem("base-not-needed", (*at, "base"), message, "give the method another name")
        elif find(builder.root, METHODS, base) is None and builder.derivation(base) is None:
            yield missing(builder.root, METHODS, base, document, (*at, "base"))


def added_parts(builder: MethodBuilder, name: str, document: Document, at: KeyPath) -> Iterator[Problem]:
    """Yield phases and regularisers that a layer adds to a method: only an arm with a base may have further ones."""
    try:
        file = builder.source(name)
    except ConfigError:
        return  # told where the method is listed
    if file is None:
        return
    layer, own, present = document.value(at), phases_of(file.data), dict(regularisers_of(file.data))
    for phase in phases_of(layer).keys() - own.keys():
        message, hint = f"method '{name}' has no phase '{phase}'", suggestion(phase, own, "its phases")
        yield document.problem("phase-absent", (*at, "phases", phase), message, hint)
    hint = "give another ingredient to an arm with base" if at else "name it in tuning.methods, of arms that have it"
    for phase, options in regularisers_of(layer):
        below = ("phases", phase) if "phases" in layer else ()
        for regulariser in options if phase in own else ():
            if regulariser not in present.get(phase, ()):
                message = f"method '{name}' has no regulariser '{regulariser}' here"
                yield document.problem("regulariser-absent", (*at, *below, "regularisers", regulariser), message, hint)


def check_lent(params: Params, methods: Mapping[str, Method], documents: Mapping[str, Document]) -> Iterator[Problem]:
    """Yield methods that stand in for a phase of another one without being listed, or though one of them is tuned."""
    for name, method in methods.items():
        for phase, config in method.config.by_phase().items():
            at, problem = (*method.config.path(phase), "method"), documents[method_file(name)].problem
            if config.method is None:
                continue
            if config.method not in params.methods:
                hint = suggestion(config.method, params.methods, "list it, or name one of these:")
                message = f"'{config.method}' stands in for the phase '{phase}' and is not listed under methods"
                yield problem("not-listed", at, message, hint)
            elif any(trials_of(params.tuning, one) for one in (method, methods.get(config.method, method))):
                hint = f"set tuning.methods: {{{name}: {{}}, {config.method}: {{}}}}, or describe the phase here"
                message = f"'{name}' and '{config.method}' are tuned apart, so neither can have the other's phases"
                yield problem("lent-tuned", at, message, hint)


def check_encoders(root: Path, method: Method, document: Document, shared: Document) -> Iterator[Found]:
    """Yield what is wrong with how a method reads the encoder of ``shared`` (``params.yaml`` on a task) or its own."""
    own = lay(shared, document, ("model",), "model")
    if method.config.model:
        yield from validate(EncoderConfig, own, ("model",))[1]
    for phase in method.phases:
        if phase.model and phase.lent is None:
            laid = lay(own, document, ("phases", phase.name, "model"), "model")
            model, wrong = validate(EncoderConfig, laid, ("model",))
            yield from wrong if model is None else check_model(root, model, laid)


def check_compositions(
    builder: MethodBuilder,
    methods: Mapping[str, Collection[tuple[Trial, Method]]],
    grid: Mapping[str, TaskConfig],
    tasks: Mapping[str, TaskConfig],
    encoders: Mapping[str, EncoderConfig],
    document: Document,
) -> Iterator[Problem]:
    """Yield the errors of a method on the tasks of the ``grid``, each once with the tasks that have it.

    ``methods``: task -> the method as it runs there, and every trial; ``tasks``: those that phases train on, too.
    """
    found: dict[str, tuple[Trial, dict[str, None]]] = {}
    for name, task in grid.items():
        for trial, method in methods[name]:
            for message in composition_errors(builder, method, task, encoders[name], tasks):
                found.setdefault(message, (trial, {}))[1][name] = None
    path: KeyPath = ("phases",) if "phases" in document.data else ("regularisers",)
    for message, (trial, names) in found.items():
        prefix = "" if len(names) == len(grid) else f"on task {listing(names)}: "
        prefix += f"tuned to {described(trial)}: " if trial else ""
        yield document.problem("bad-composition", path, prefix + message)


def composition_errors(
    builder: MethodBuilder, method: Method, task: TaskConfig, encoder: EncoderConfig, tasks: Mapping[str, TaskConfig]
) -> list[str]:
    """Return the errors of one method on one task; ``tasks`` holds those that phases name."""
    model: EncoderConfig | None = encoder
    try:
        for phase in method.phases:
            method.encoder(encoder, phase)
    except ValidationError:  # an encoder that the method cannot take is a problem of its own
        model = None
    tf32 = builder.settings.execution.tf32
    return compose.check_method(builder.registry, method, task, model, tasks, tf32=tf32)


def check_tuning(
    builder: MethodBuilder, methods: Mapping[str, Method], grid: Collection[str], changed: Collection[tuple[str, str]]
) -> tuple[list[Found], dict[tuple[str, str], list[tuple[Trial, Method]]]]:
    """Return the problems of ``tuning``, and (method, task of the grid) -> every trial and the method that it is there.

    ``changed``: those that the task changes.
    """
    document, problems, tuning = builder.params, list[Found](), builder.settings.tuning
    if tuning is None:
        return [], {}
    for name in tuning.methods:
        if name not in builder.settings.methods:
            problems.append(unlisted(builder.settings, "method", name, document, ("tuning", "methods", name)))
    trainings: dict[str, int] = {}
    tried: dict[tuple[str, str], list[tuple[Trial, Method]]] = {}
    for name, method in methods.items():
        trials = trials_of(tuning, method)
        try:
            shared = _tuned(builder, name, None, trials)
            for task in grid:
                own = _tuned(builder, name, task, trials) if (name, task) in changed else shared
                tried[name, task] = list(zip(trials, own))
                for trial, one in tried[name, task]:
                    laid = lay(builder.document(name, task) or document, layer_of(builder, name, trial))
                    problems += check_encoders(builder.root, one, laid, builder.shared(task))
        except ConfigError as error:
            problems += error.problems
            continue
        # Trials that differ in a stepless phase only share their training.
        stepping = [[phase for phase in one.phases if phase.training.epochs] for one in shared]
        if any(stepping):
            trainings[name] = len({repr((phases, one.config.model)) for phases, one in zip(stepping, shared)})
    if tuning.selection == "split" and len(set(trainings.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in trainings.items())
        message = f"methods train different numbers of trials ({counts}), so the best of them cannot be compared"
        hint = "give each as many values, or set tuning.trials to a number that each of them has"
        problems.append(document.problem("unequal-trials", ("tuning",), message, hint))
    return problems, tried


def _tuned(builder: MethodBuilder, name: str, task: str | None, trials: list[Trial]) -> list[Method]:
    """Return the method of each trial. Raises ConfigError for values that do not fit, and for trials that are equal."""
    methods: list[Method] = []
    seen: dict[str, Trial] = {}
    for trial in trials:
        if wrong := [*added_parts(builder, name, laid := layer_of(builder, name, trial), ())]:
            raise ConfigError(wrong)
        tuned, training = tuned_method(builder, name, task, trial)
        methods.append(tuned)
        earlier = seen.setdefault(f"{tuned.phases!r} {training!r} {tuned.config.model}", trial)
        if earlier is not trial:
            message = f"'{name}' would be the same run with {described(trial)} as with {described(earlier)}"
            hint = "its file sets that value itself: name it under phases.<phase>.training, or keep one of the two"
            raise ConfigError([laid.problem("same-trial", next(iter(laid.places), ()), message, hint)])
    return methods

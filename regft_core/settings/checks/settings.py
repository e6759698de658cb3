"""Errors in ``task_settings`` and ``method_settings`` (``settings`` says what they come to)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema.params import Params
from regft_core.schema.settings import MethodLayer, PhaseLayer
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.checks.params import EncoderCheck
from regft_core.settings.files import METHODS, find, method_file, missing, task_file
from regft_core.settings.settings import model_of
from regft_core.settings.yaml.document import Document, KeyPath


def check_settings(
    builder: MethodBuilder,
    params: Params,
    document: Document,
    tasks: Mapping[str, TaskConfig],
    documents: Mapping[str, Document],
    encoder_check: EncoderCheck | None,
) -> list[Problem]:
    """Names that are not listed, arms without a base, keys that the method's file does not have, lengths.

    ``params`` may be incomplete (``parts``), as may the ``tasks`` of the grid.
    """
    if not params.known("task_settings", "method_settings", "methods", "grid"):
        return []
    problems = []
    listed_tasks = params.grid.tasks if params.grid.known("tasks") else tuple(params.task_settings)
    for task in params.task_settings:
        if task not in listed_tasks:
            message = f"task '{task}' is not in grid.tasks"
            hint = suggestion(task, listed_tasks, "tasks listed")
            problems.append(document.problem("not-listed", ("task_settings", task), message, hint))
    for at, name, layer in _layers(params):
        if name not in params.methods:
            hint = suggestion(name, params.methods, "methods listed")
            problems.append(document.problem("not-listed", at, f"method '{name}' is not listed under methods", hint))
        problems += _check_layer(builder, params, document, at, name, layer)
    if encoder_check is not None and params.known("model") and params.model.known("name"):
        problems += _check_lengths(builder.root, params, document, tasks, documents, encoder_check)
    return problems


def _layers(params: Params) -> Iterator[tuple[KeyPath, str, MethodLayer]]:
    for name, layer in params.method_settings.items():
        yield ("method_settings", name), name, layer
    for task, settings in params.task_settings.items():
        if settings.known("methods"):
            for name, own in settings.methods.items():
                yield ("task_settings", task, "methods", name), name, own


def _check_layer(
    builder: MethodBuilder, params: Params, document: Document, at: KeyPath, name: str, layer: MethodLayer
) -> list[Problem]:
    """An arm's base; elsewhere phases and regularisers that the file does not have, which are slips."""
    own = params.method_settings.get(name)
    base = own.base if own is not None and own.known("base") else None
    if base is not None and at[0] == "method_settings":
        if find(builder.root, METHODS, name) is not None:
            message = f"'{name}' has a file of its own, {method_file(name)}, so it needs no base"
            return [
                document.problem(
                    "base-not-needed", (*at, "base"), message, "remove base, or give the method another name"
                )
            ]
        problem = None if builder.knows(base) else missing(builder.root, METHODS, base, document, (*at, "base"))
        return [problem] if problem is not None else []
    try:
        file = builder.source(base or name)
    except ConfigError:
        file = None
    if file is None:
        return []  # said where the method is listed
    return list(_slips(document, at, name, layer, file.data, base))


def _slips(
    document: Document, at: KeyPath, name: str, layer: MethodLayer, file: dict[str, object], base: str | None
) -> Iterator[Problem]:
    phases = file.get("phases")
    if not isinstance(phases, dict) and layer.known("phases") and layer.phases:
        message = f"method '{name}' has no phases"
        yield document.problem(
            "no-phases", (*at, "phases"), message, "write training and regularisers directly below its name"
        )
        return
    if isinstance(phases, dict):
        for key in ("training", "regularisers"):
            if key in layer.model_fields_set:
                message = f"method '{name}' has phases, so {key} belongs to one of them"
                yield document.problem(
                    "key-of-a-phase", (*at, key), message, f"write phases: {{finetune: {{{key}: ...}}}}"
                )
    places: list[tuple[KeyPath, MethodLayer | PhaseLayer, dict[str, object]]] = [(at, layer, file)]
    for phase, entry in layer.phases.items() if layer.known("phases") else ():
        below = phases.get(phase) if isinstance(phases, dict) else None
        if not isinstance(below, dict):
            hint = suggestion(phase, list(phases) if isinstance(phases, dict) else [], "its phases")
            yield document.problem(
                "unknown-phase", (*at, "phases", phase), f"method '{name}' has no phase '{phase}'", hint
            )
            continue
        places.append(((*at, "phases", phase), entry, below))
    if base is not None:
        return  # an arm may have regularisers that its base has not
    for path, part, below in places:
        there = below.get("regularisers")
        names = list(there) if isinstance(there, dict) else []
        for regulariser in part.regularisers if part.known("regularisers") else ():
            if regulariser not in names:
                message = f"method '{name}' has no regulariser '{regulariser}' here"
                hint = suggestion(regulariser, names, "it has") if names else "it has none"
                hint += "; another ingredient makes another method: give it a name and base"
                yield document.problem("regulariser-absent", (*path, "regularisers", regulariser), message, hint)


def _check_lengths(
    root: Path,
    params: Params,
    document: Document,
    tasks: Mapping[str, TaskConfig],
    documents: Mapping[str, Document],
    encoder_check: EncoderCheck,
) -> list[Problem]:
    """``max_length`` of single tasks against what the encoder takes."""
    problems: list[Problem] = []
    for task in tasks:
        model = model_of(params, tasks, task)
        if model == params.model:
            continue
        settings = params.task_settings.get(task)
        own = settings is not None and settings.known("model") and "max_length" in settings.model.model_fields_set
        place = document if own else documents[task_file(task)]
        at: KeyPath = ("task_settings", task, "model", "max_length") if own else ("model", "max_length")
        for key, code, message in encoder_check(model, root):
            if key == "max_length":
                problems.append(place.problem(code, at, message))
    return problems

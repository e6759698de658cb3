"""Errors of methods beyond their files: layers for names that are not there, parts that do not go with a task."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.hooks import compose
from regft_core.names import listing, suggestion
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import Method
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.derived import regularisers_of
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.files import METHODS, find, method_file, missing

#: The protocol and the encoder that all methods share on a task.
Sections = tuple[TrainingConfig, EncoderConfig]


def check_layers(builder: MethodBuilder, params: Params, document: Document) -> Iterator[Problem]:
    """Yield names in ``task_settings`` and ``method_settings`` that are not listed, and what their base lacks."""
    for task in params.task_settings:
        if task not in params.grid.tasks:
            hint = suggestion(task, params.grid.tasks, "tasks listed")
            yield document.problem("not-listed", ("task_settings", task), f"task '{task}' is not in grid.tasks", hint)
    places: list[tuple[KeyPath, str]] = [(("method_settings", name), name) for name in params.method_settings]
    for task, settings in params.task_settings.items():
        places += [(("task_settings", task, "methods", name), name) for name in settings.methods]
    for at, name in places:
        base = builder.base(name)
        if name not in params.methods:
            hint = suggestion(name, params.methods, "methods listed")
            yield document.problem("not-listed", at, f"method '{name}' is not listed under methods", hint)
        if base == name:
            yield from _added(builder, document, at, name)
        elif find(builder.root, METHODS, name) is not None:
            message = f"'{name}' has a file of its own, {method_file(name)}, so it needs no base"
            yield document.problem("base-not-needed", (*at, "base"), message, "give the method another name")
        elif not builder.knows(base):
            yield missing(builder.root, METHODS, base, document, (*at, "base"))


def _added(builder: MethodBuilder, document: Document, at: KeyPath, name: str) -> Iterator[Problem]:
    """Yield regularisers that a layer adds to a method: only an arm with a base may have further ones."""
    try:
        file = builder.source(name)
    except ConfigError:
        return  # told where the method is listed
    present = {phase: set(options) for phase, options in regularisers_of(file.data)} if file is not None else {}
    for phase, options in regularisers_of(document.value(at)):
        for regulariser in options if phase in present else ():
            if regulariser not in present[phase]:
                message = f"method '{name}' has no regulariser '{regulariser}' here"
                hint = "another ingredient makes another method: give it a name and base"
                below = ("phases", phase) if "phases" in document.value(at) else ()
                yield document.problem("regulariser-absent", (*at, *below, "regularisers", regulariser), message, hint)


def check_compositions(
    registry: Mapping[str, Any],
    method: Method,
    on_task: Mapping[str, Method],
    trials: Collection[Method],
    grid: Mapping[str, TaskConfig],
    tasks: Mapping[str, TaskConfig],
    params: Params,
    sections: Mapping[str, Sections],
    document: Document,
) -> Iterator[Problem]:
    """Yield the errors of a method on the tasks of the grid, each once with the tasks that have it.

    Args:
        method: under the shared protocol.
        on_task: task -> the method as that task changes it.
        trials: the method with tuned values.
        grid: the tasks of the grid that are right.
        tasks: all tasks that are right, also those that only phases train on.
        sections: task -> shared protocol and encoder on it.
        document: the method's file.
    """
    found: dict[str, list[str]] = {}
    for name, task in grid.items():
        training, model = sections[name]
        shared = params.model_copy(update={"training": training, "model": model})
        # Where a task changes the method, its trials are laid over that: they are other methods than these.
        tried = (on_task[name],) if name in on_task else (method, *trials)
        messages = [text for one in tried for text in composition_errors(registry, one, task, shared, tasks)]
        for message in dict.fromkeys(messages):
            found.setdefault(message, []).append(name)
    path: KeyPath = ("phases",) if method.config.phases is not None else ("regularisers",)
    for message, names in found.items():
        prefix = "" if len(names) == len(grid) else f"on task {listing(names)}: "
        yield document.problem("bad-composition", path, prefix + message)


def composition_errors(
    registry: Mapping[str, Any], method: Method, task: TaskConfig, params: Params, tasks: Mapping[str, TaskConfig]
) -> list[str]:
    """Return the errors of one method on one task; ``tasks`` holds those that phases name."""
    # An encoder that the method cannot take is a problem of its own.
    model = None if method.encoder_problem(params.model) else params.model
    return compose.check_method(registry, method, params.training, task, model, tasks, tf32=params.execution.tf32)

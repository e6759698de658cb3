"""Errors of each method on the tasks of the grid: parts that do not go together, or not with a task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from regft_core.errors import Problem
from regft_core.hooks import compose
from regft_core.names import listing
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import Method
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.document import Document, KeyPath

#: The protocol and the encoder that all methods share on a task.
Sections = tuple[TrainingConfig, EncoderConfig]


def check_compositions(
    registry: Mapping[str, Any],
    method: Method,
    changed: Mapping[str, Method],
    trials: Collection[Method],
    grid: Mapping[str, TaskConfig],
    tasks: Mapping[str, TaskConfig],
    params: Params,
    sections: Mapping[str, Sections],
    document: Document,
) -> list[Problem]:
    """Return the errors of a method on the tasks of the grid, each once with the tasks that have it.

    Args:
        method: under the shared protocol.
        changed: task -> the method as that task changes it.
        trials: the method with tuned values.
        grid: the tasks of the grid that are right.
        tasks: all tasks that are right, also those that only phases train on.
        sections: task -> shared protocol and encoder on it.
        document: the method's file.
    """

    def errors(method: Method, task: TaskConfig | None, training: TrainingConfig, model: EncoderConfig) -> list[str]:
        own = params.model_copy(update={"training": training, "model": model})
        return composition_errors(registry, method, task, own, tasks)

    anywhere = errors(method, None, params.training, params.model)
    found: dict[str, list[str]] = {} if changed.keys() >= grid.keys() and grid else {text: [] for text in anywhere}
    for name, task in grid.items():
        training = sections[name][0] if name in changed else params.training
        messages = errors(changed.get(name, method), task, training, sections[name][1])
        # Where a task changes the method, its trials are laid over that: they are other methods than these.
        for trial in () if name in changed else trials:
            messages += errors(trial, task, params.training, sections[name][1])
        for message in dict.fromkeys(messages):
            found.setdefault(message, []).append(name)
    path: KeyPath = ("phases",) if method.config.phases is not None else ("regularisers",)
    problems = []
    for message, names in found.items():
        everywhere = message in anywhere or len(names) == len(grid) > 1
        prefix = "" if everywhere else f"on task {listing(names)}: "
        problems.append(document.problem("bad-composition", path, prefix + message))
    return problems


def composition_errors(
    registry: Mapping[str, Any],
    method: Method,
    task: TaskConfig | None,
    params: Params,
    tasks: Mapping[str, TaskConfig],
) -> list[str]:
    """Return the errors of one method on one task (None: on any); ``tasks`` holds those that phases name."""
    # An encoder that the method cannot take is a problem of its own.
    model = None if method.encoder_problem(params.model) else params.model
    return compose.check_method(registry, method, params.training, task, model, tasks, tf32=params.execution.tf32)

"""Errors of each method on the tasks of the grid: parts that do not go together, or not with a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from regft_core.errors import Problem
from regft_core.names import listing
from regft_core.schema.method import Method
from regft_core.schema.params import Params
from regft_core.schema.tasks import TaskConfig
from regft_core.settings.settings import model_of, training_of
from regft_core.settings.yaml.document import Document, KeyPath

#: Errors of a method on a task (None: on any), given the right tasks by name: phases may train on others.
ComposeCheck = Callable[[Method, TaskConfig | None, Params, Mapping[str, TaskConfig]], list[str]]


def check_compositions(
    method: Method,
    changed: Mapping[str, Method],
    trials: Iterable[Method],
    grid: Mapping[str, TaskConfig],
    every: Mapping[str, TaskConfig],
    params: Params,
    compose_check: ComposeCheck,
    document: Document,
) -> list[Problem]:
    """Errors of a method on each task of the grid; tasks with the same errors are asked together.

    Args:
        method: under the shared protocol.
        changed: task -> the method as that task changes it.
        trials: the method with tuned values.
        grid: the tasks of the grid that are right.
        every: all tasks that are right, also those that only phases train on.
        document: the method's file.
    """
    problems = []
    same = {task: config for task, config in grid.items() if task not in changed}
    alike: dict[str, dict[str, TaskConfig]] = {}
    for task, config in same.items():
        alike.setdefault(model_of(params, grid, task).model_dump_json(), {})[task] = config
    if not grid:
        alike["none"] = {}  # errors that need no task
    for tasks in alike.values():
        model = model_of(params, grid, next(iter(tasks))) if tasks else params.model
        own = params.model_copy(update={"model": model})
        problems += _check(method, tasks, every, own, compose_check, document)
    for task, config in grid.items():
        if task in changed:
            changes = {"model": model_of(params, grid, task), "training": training_of(params, grid, task)}
            own = params.model_copy(update=changes)
            problems += _check(changed[task], {task: config}, every, own, compose_check, document)
    # Where a task changes the method, its trials are laid over that: they are other methods than these.
    for trial in trials:
        problems += _check(trial, same, every, params, compose_check, document)
    return problems


def _check(
    method: Method,
    tasks: Mapping[str, TaskConfig],
    every: Mapping[str, TaskConfig],
    params: Params,
    compose_check: ComposeCheck,
    document: Document,
) -> list[Problem]:
    """Errors of ``method`` on any task, and on each of ``tasks``; an error on all of them is listed once.

    ``every`` are all tasks that are right, also those that only phases train on.
    """
    anywhere = dict.fromkeys(compose_check(method, None, params, every))
    where: dict[str, list[str]] = {message: list(tasks) for message in anywhere}
    for name, task in tasks.items():
        for message in dict.fromkeys(compose_check(method, task, params, every)):
            if message not in anywhere:
                where.setdefault(message, []).append(name)
    problems = []
    path: KeyPath = ("phases",) if method.config.phases is not None else ("regularisers",)
    for message, names in where.items():
        everywhere = message in anywhere or (len(names) == len(tasks) and len(tasks) > 1)
        prefix = "" if everywhere else f"on task {listing(names)}: "
        problems.append(document.problem("bad-composition", path, prefix + message))
    return problems

"""What ``task_settings`` and ``method_settings`` come to.

From weak to strong: ``training``, the task's own file, ``task_settings.<task>``, the method's file,
``method_settings.<method>``, ``task_settings.<task>.methods.<method>``, a tuned value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from regft_core.schema import Size
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.params import Params
from regft_core.schema.settings import TaskSettings
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import TrainingConfig


def training_of(params: Params, tasks: Mapping[str, TaskConfig], task: str) -> TrainingConfig:
    """The protocol that all methods share on ``task``; the task and its settings may be incomplete (``parts``)."""
    training = params.training
    for layer in _layers(params, tasks, task):
        if layer.known("training"):
            training = layer.training.over(training)
    return training


def model_of(params: Params, tasks: Mapping[str, TaskConfig], task: str) -> EncoderConfig:
    """The section ``model`` on ``task``; the task and its settings may be incomplete (``parts``)."""
    model = params.model
    for layer in _layers(params, tasks, task):
        if layer.known("model"):
            model = layer.model.over(model)
    return model


def sizes_of(params: Params, task: str) -> tuple[Size, ...]:
    """The training sizes of a task of the grid: its own, else those of the grid."""
    own = params.task_settings.get(task)
    return params.grid.sizes if own is None or own.sizes is None else own.sizes


def all_sizes(params: Params) -> list[Size]:
    """Every training size of a task of the grid, once, in order."""
    return list(dict.fromkeys(size for task in params.grid.tasks for size in sizes_of(params, task)))


def _layers(params: Params, tasks: Mapping[str, TaskConfig], task: str) -> Iterator[TaskConfig | TaskSettings]:
    """What changes the shared sections on ``task``, weaker first."""
    if task in tasks:
        yield tasks[task]
    if task in params.task_settings:
        yield params.task_settings[task]


def arms_of(params: Params) -> list[str]:
    """Names under ``method_settings`` that stand for arms without a file."""
    return [name for name, own in params.method_settings.items() if own.base is not None]

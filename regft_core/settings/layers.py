"""Layers of settings, from weak to strong.

``training`` and ``model`` of ``params.yaml``, the task's own file, ``task_settings.<task>``, the method's file,
``method_settings.<method>``, ``task_settings.<task>.methods.<method>``, a tuned value.
"""

from __future__ import annotations

from regft_core.errors import Problem
from regft_core.schema import Size
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.params import Params
from regft_core.schema.training import TrainingConfig
from regft_core.settings.document import Document
from regft_core.settings.laying import lay
from regft_core.settings.validate import validate


def on_task(params: Document, task: str, file: Document | None) -> Document:
    """Return ``params.yaml`` with ``training`` and ``model`` as a task changes them; ``file`` is the task's."""
    for section in ("training", "model"):
        if file is not None:
            params = lay(params, file, (section,), (section,))
        params = lay(params, params, ("task_settings", task, section), (section,))
    return params


def shared_sections(document: Document) -> tuple[TrainingConfig | None, EncoderConfig | None, list[Problem]]:
    """Return the protocol and the encoder that all methods share on a task, and what is wrong with them."""
    training, problems = validate(TrainingConfig, document, ("training",))
    model, more = validate(EncoderConfig, document, ("model",))
    if training is not None and training.epochs == 0:
        message, hint = "is 0 (a whole number); allowed: at least 1", "only a method may train nothing"
        more.append(document.problem("invalid-value", ("training", "epochs"), message, hint))
    return training, model, problems + more


def sizes_of(params: Params, task: str) -> tuple[Size, ...]:
    """Return the training sizes of a task of the grid: its own, else those of the grid."""
    own = params.task_settings.get(task)
    return params.grid.sizes if own is None or own.sizes is None else own.sizes


def all_sizes(params: Params) -> list[Size]:
    """Return every training size of a task of the grid, once, in order."""
    return list(dict.fromkeys(size for task in params.grid.tasks for size in sizes_of(params, task)))

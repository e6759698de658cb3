"""``task_settings`` and ``method_settings`` of ``params.yaml``: what is laid over the files of tasks and methods.

A layer is a mapping as it stands in the file. It is checked once, as part of what it is laid over.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from regft_core.schema import Name, Override, Size, StrictModel
from regft_core.schema.encoder import TaskModel

#: What is laid over a method's file, or over a phase's or task's ``training``.
Layer = dict[str, Any]


class MethodSettings(StrictModel):
    """A listed method's layer on every task; with ``base`` a further arm that has no file of its own."""

    model_config = ConfigDict(extra="allow")

    base: Name | None = Field(None, description="the method of pipelines/methods that this arm starts from")


class TaskSettings(StrictModel):
    """Changes on one task of the grid: for every method, and for single ones."""

    training: Layer = Field({})
    model: TaskModel = Field({})
    sizes: Override[Annotated[tuple[Size, ...], Field(strict=False, min_length=1)]] = Field(
        None, description="training sizes of this task in place of grid.sizes"
    )
    methods: dict[Name, Layer] = Field({})

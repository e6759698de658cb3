"""``task_settings`` and ``method_settings`` of ``params.yaml``: what is laid over the files of tasks and methods."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from regft_core.schema import Name, OneOrMoreNames, Override, Size, StrictModel
from regft_core.schema.encoder import ModelOverrides, TaskModel
from regft_core.schema.methods import Regularisers, SettingPath
from regft_core.schema.training import TaskTraining, TrainingOverrides


class PhaseLayer(StrictModel):
    """What is laid over one phase of a method, key by key; the result is checked as if it stood in one file."""

    data: dict[str, Any] = Field({})
    repeat: dict[str, Any] = Field({})
    regularisers: Regularisers = Field({})
    training: TrainingOverrides = TrainingOverrides()


class MethodLayer(StrictModel):
    """What is laid over a method's file, key by key; ``phases`` for a method that has phases."""

    regularisers: Regularisers = Field({})
    training: TrainingOverrides = TrainingOverrides()
    phases: dict[Name, PhaseLayer] = Field({})


class MethodSettings(MethodLayer):
    """A listed method's layer on every task; with ``base`` a further arm that has no file of its own."""

    base: Name | None = Field(None, description="the method of pipelines/methods that this arm starts from")
    description: str = ""
    paper: str = ""
    control_for: OneOrMoreNames = ()
    differs_in: tuple[SettingPath, ...] = Field((), strict=False)
    variant_of: OneOrMoreNames = ()
    model: ModelOverrides | None = None


class TaskSettings(StrictModel):
    """What one task of the grid changes: for every method, and for single ones."""

    training: TaskTraining = TaskTraining()
    model: TaskModel = TaskModel()
    sizes: Override[Annotated[tuple[Size, ...], Field(strict=False, min_length=1)]] = Field(
        None, description="training sizes of this task in place of grid.sizes"
    )
    methods: dict[Name, MethodLayer] = Field({})

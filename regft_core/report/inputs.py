"""What a report is made of: a grid with its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from regft_core.schema.methods import MethodConfig
from regft_core.schema.params import SmallScale
from regft_core.schema.report import ReportConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.grid import Cell
from regft_core.settings.project import LeftOut


class MethodMeta(Protocol):
    """What the report reads of a method; ``settings.method.Method`` has it."""

    @property
    def config(self) -> MethodConfig:
        """Its YAML."""

    @property
    def phases(self) -> Sequence[Any]:
        """All phases; the last one is fine-tuning."""

    @property
    def earlier(self) -> Sequence[Any]:
        """The phases before fine-tuning."""


@dataclass(frozen=True)
class Inputs:
    """A grid as a report sees it; nothing else in ``work/`` is read.

    Attributes:
        root: project root.
        methods: by name (``Project.methods``).
        training: the shared training protocol, for the list of what methods override; the reference method's own when
            absent. ``task_training``: that protocol as single tasks change it.
        looks: the file that remembers looks at earlier seeds (``interim.FILE`` in the run store); without it every look
            is the first.
        failed: cells of the grid that have no result, with the reasons: the first warnings of the page.
        small_scale: marks page, terminal and ``results.json`` as not the paper's experiment.
        left_out: declared out-of-distribution sets that are not evaluated on (``Project.left_out``).
    """

    root: Path
    cells: Sequence[Cell]
    seeds: Sequence[int]
    config: ReportConfig
    methods: Mapping[str, MethodMeta]
    training: TrainingConfig | None = None
    task_training: Mapping[str, TrainingConfig] = field(default_factory=dict)
    looks: Path | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    small_scale: SmallScale | None = None
    left_out: Mapping[str, Mapping[str, LeftOut]] = field(default_factory=dict)

    @cached_property
    def shared(self) -> dict[str, Any] | None:
        """The shared protocol as plain values."""
        return self.training.model_dump(mode="json") if self.training is not None else None

    @cached_property
    def on_tasks(self) -> dict[str, dict[str, Any]]:
        """Task -> the shared protocol with what the task changes."""
        return {task: own.model_dump(mode="json") for task, own in self.task_training.items()}

    def absent(self, block: str) -> tuple[str, ...]:
        """Methods of the failed cells (``method/task/size``) of one block."""
        cells = [cell.split("/") for cell in self.failed]
        return tuple(method for method, task, size in cells if f"{task}-{size}" == block)

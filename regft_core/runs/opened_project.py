"""A project, opened and checked against the regularisers that there are, and a run of it to do. No torch."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from regft_core import __version__
from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.runs.code import version
from regft_core.settings.layers import all_sizes, sizes_of
from regft_core.settings.project import Cell, Project, cells
from regft_core.settings.read_project import open_project as open_project

REPORTED_PACKAGES = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy"),
    *("datasets", "dvc", "mlflow", "pydantic"),
)


@cache
def opened(root: str) -> Project:
    """Return the project of a process's jobs, read once: an edit of its settings counts from the next stage on."""
    return open_project(Path(root))


def check_listed(project: Project, **given: str | int) -> None:
    """Raise ConfigError for a ``method``, ``task``, ``size`` or ``seed`` that ``params.yaml`` does not list."""
    grid, task = project.params.grid, str(given.get("task"))
    of_task = task in grid.tasks
    listed = {
        "method": list(project.methods),
        "task": list(grid.tasks),
        "size": [str(size) for size in (sizes_of(project.params, task) if of_task else all_sizes(project.params))],
        "seed": [str(seed) for seed in grid.seeds],
    }
    problems = []
    for what, value in given.items():
        if str(value) not in listed[what]:
            key = "methods" if what == "method" else f"grid.{what}s"
            hint = suggestion(str(value), listed[what], f"{what}s listed")
            problems.append(Problem("not-listed", "params.yaml", 0, key, f"{what} '{value}' is not listed", hint))
    if problems:
        raise ConfigError(problems)


def named_cells(project: Project, names: Sequence[str]) -> list[Cell]:
    """Return the cells of each ``METHOD/TASK``, or ``METHOD`` for all its tasks; raises as ``check_listed``."""
    for name in names:
        check_listed(project, **dict(zip(("method", "task"), name.split("/", 1))))
    return [cell for cell in cells(project) if cell.method in names or f"{cell.method}/{cell.task}" in names]


def versions() -> dict[str, str]:
    """Return the versions of Python, regft and the packages that compute."""
    packages = {name: number for name in REPORTED_PACKAGES if (number := version(name)) is not None}
    return {"python": platform.python_version(), "regft": __version__, **packages}


@dataclass(frozen=True)
class Job:
    """One run to do, as plain values that can be sent to another process.

    Attributes:
        values: tuned settings of the run, dotted; None where nothing is tuned.
        trial: number of the trial that this is; None for a run of the grid.
        fold: of the run's training rows, the fold that the trial is scored on; None where a share is set aside.
        progress: folder of the progress board, or None.
        stored_only: only look the run up; what is not in the run store raises ``NotStored``.
        until: the last stage that is meant.
        refit: train on all labelled rows, with the settings of the evaluated runs; ``values`` are given then.
        evaluated: of a refit, seed and tuned values of the evaluated runs that phases may average.
        store: the run store's folder where it is not that of ``params.yaml``: for a copy of a project on a worker.
    """

    root: str
    method: str
    task: str
    size: str
    seed: int
    progress: str | None = None
    values: Mapping[str, Any] | None = None
    trial: int | None = None
    fold: int | None = None
    stored_only: bool = False
    store: str | None = None
    until: Literal["search", "finetune", "evaluate"] = "evaluate"
    refit: bool = False
    evaluated: tuple[tuple[int, Mapping[str, Any] | None], ...] = ()

    @property
    def name(self) -> str:
        """The run among all of them: ``vanilla cue_pair 300 seed 1``, ``vanilla cue_pair 300 seed 1 trial 2``."""
        trial = "" if self.trial is None else f" trial {self.trial + 1}"
        fold = "" if self.fold is None else f" fold {self.fold + 1}"
        size = f"{self.size}{' refit' if self.refit else ''}"
        return f"{self.method} {self.task} {size} seed {self.seed}{trial}{fold}"

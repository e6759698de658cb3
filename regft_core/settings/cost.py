"""Plan of the grid: what ``dvc repro`` would train and what it costs, without building a model.

Cost is counted in steps of plain fine-tuning (one forward and one backward pass over a batch,
a forward counted 1 and a backward 2), so that methods can be compared before anything ran. What is fitted without
steps counts by its passes over the rows, an epoch of plain fine-tuning being one of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.errors import StoreError
from regft_core.io.reading import read_json
from regft_core.names import duration
from regft_core.schema.method import Phase, Registry
from regft_core.schema.training import TrainingConfig
from regft_core.settings.grid import Cell, cells
from regft_core.settings.papers.public_sizes import published_rows
from regft_core.settings.project import Project

#: Seeds of a cell whose runs exist.
Cached = Callable[[Cell], set[int]]


@dataclass(frozen=True)
class PlanRow:
    """The plan of one cell.

    Attributes:
        cell: the cell.
        seeds: seeds that the grid asks for.
        cached: seeds whose run exists.
        rows: training rows of a run; None for ``full`` of a set of unknown size before it was prepared.
        steps: optimiser steps of one run's fine-tuning; None when ``rows`` matters and is unknown.
        cost: plain-step equivalents of one run, search and trials included; None when unknown.
        search: the part of ``cost`` that the stage search does: trials, and phases before fine-tuning.
        examples: examples that plain steps of the same cost would train on, per run; None when unknown.
        published: whether ``rows`` is the published size of a public set that is not prepared yet.
        shared: the part of ``cost * to_train`` that the run store has or an earlier row of the plan trains; 0 to 1.
    """

    cell: Cell
    seeds: int
    cached: int
    rows: int | None
    steps: int | None
    cost: float | None
    search: float | None
    examples: float | None = None
    published: bool = False
    shared: float = 0.0

    @property
    def to_train(self) -> int:
        """Seeds whose run is not in the store."""
        return self.seeds - self.cached

    @property
    def in_grid(self) -> float | None:
        """Plain-step equivalents that all its runs add to this grid; None when ``cost`` is unknown."""
        return None if self.cost is None else self.cost * self.to_train * (1 - self.shared)


def plan_rows(project: Project, registry: Registry, cached: Cached = lambda cell: set()) -> list[PlanRow]:
    """One row per cell of the grid.

    Args:
        project: a valid project.
        cached: what the run store holds; by default nothing.
        registry: the regularisers' classes, which declare what a step costs.
    """
    rows = []
    for cell in cells(project):
        wanted = set(project.params.grid.seeds)
        prepared = training_rows(project.root, cell)
        count = published_rows(project.tasks[cell.task]) if prepared is None else prepared
        method = project.method(cell.method, cell.task)
        steps = optimiser_steps(method.training, count)
        shared = project.shared(cell.task)
        *earlier, last = (phase_cost(phase, count, registry, shared) for phase in method.phases)
        cost = search = None
        if last is not None and None not in earlier:
            search = sum(phase for phase in earlier if phase is not None)
            if trials := project.trials(cell.method):
                tried, final = _tried(project, cell, trials, registry, count)
                search, last = tried + search * final, last * final
            cost = search + last
        examples = None if cost is None else cost * shared.batch_size
        have = len(cached(cell) & wanted)
        published = prepared is None and count is not None
        rows.append(PlanRow(cell, len(wanted), have, count, steps, cost, search, examples, published))
    return rows


def optimiser_steps(training: TrainingConfig, rows: int | None) -> int | None:
    """Optimiser steps of one run on ``rows`` examples; None when that needs an unknown ``rows``."""
    if training.epochs == 0:
        return 0
    if training.max_steps is not None:
        return training.max_steps
    if rows is None:
        return None
    return training.epochs * epoch_steps(training, rows)


def epoch_steps(training: TrainingConfig, rows: int) -> int:
    """Optimiser steps of one epoch over ``rows`` examples."""
    return math.ceil(math.ceil(rows / training.batch_size) / training.accumulation)


def training_rows(root: Path, cell: Cell) -> int | None:
    """Examples that one run of ``cell`` trains on; None for ``full`` until the dataset is prepared."""
    return prepared_rows(root, cell.task) if cell.size == "full" else cell.size


def prepared_rows(root: Path, task: str) -> int | None:
    """Training rows of a dataset as last prepared; None where it never was."""
    try:
        described = read_json(root / "work" / "datasets" / task / "task.json")
    except StoreError:
        return None
    count: int | None = described.get("counts", {}).get("train")
    return count


def _tried(
    project: Project, cell: Cell, trials: Sequence[Mapping[str, Any]], registry: Registry, rows: int | None
) -> tuple[float, int]:
    """Cost of all trials of a run, and how many runs follow: the chosen one is the run, or is redone.

    Phases that trials share count once. ``rows`` matters where a phase of the run needs it, and is known there.
    """
    tuning = project.params.tuning
    assert tuning is not None
    once: dict[str, float] = {}
    for values in trials:
        method, training = project.tuned(cell.method, cell.task, values)
        for index, phase in enumerate(method.phases):
            path = repr((training, method.phases[: index + 1]))
            once.setdefault(path, phase_cost(phase, rows, registry, training) or 0.0)
    return sum(once.values()) * tuning.share * tuning.rounds, int(tuning.selection == "split")


def phase_cost(phase: Phase, rows: int | None, registry: Registry, shared: TrainingConfig) -> float | None:
    """Plain-step equivalents of all members of a phase, in a cell of ``rows`` rows; None when that needs an unknown.

    A plain step is one over a batch of the ``shared`` protocol: one of a phase with smaller batches is a part of it.
    """
    count: int | None = rows
    if phase.data.task is not None or phase.data.size is not None:
        count = phase.data.size if isinstance(phase.data.size, int) else None
    if phase.data.steps == "full":
        count = None  # known once the task is prepared
    if count is not None:
        count = int(count * phase.data.split)
    own = phase.training
    steps, fit = optimiser_steps(own, count), phase.fit_ratio(registry)
    if steps is None or (fit and count is None):
        return None
    plain = steps * phase.ratio(registry) + (fit * epoch_steps(own, count) if count is not None else 0.0)
    return plain * own.accumulation * phase.members * own.batch_size / shared.batch_size


def same_batches(own: TrainingConfig, shared: TrainingConfig) -> bool:
    """Whether a step goes over as many rows under both protocols."""
    return (own.batch_size, own.accumulation) == (shared.batch_size, shared.accumulation)


def plain_steps(steps: int, own: TrainingConfig, shared: TrainingConfig, rows: int) -> float:
    """The steps in which plain fine-tuning goes over as many of ``rows`` rows as ``steps`` steps of ``own`` do."""
    return steps * epoch_steps(shared, rows) / epoch_steps(own, rows)


# ------------------------------------------------------------------------------------ table


def table(rows: list[PlanRow], seconds: Callable[[Cell], float | None]) -> str:
    """The plan as text, with totals; ``?`` stands for what cannot be known yet.

    ``seconds``: of one worker for what a cell still has to train.
    """
    head = ("cell", "seeds", "cached", "to train", "steps/run", "plain steps/run", "in this grid", "estimate")
    lines = [head]
    for row in rows:
        cost = "?" if row.cost is None else f"{row.cost:,.0f}"
        steps = "?" if row.steps is None else f"{row.steps:,}"
        one = seconds(row.cell) if row.to_train else None
        time = "-" if row.to_train == 0 else "?" if one is None else duration(one)
        added = "?" if row.in_grid is None else f"{row.in_grid:,.0f}"
        lines.append((row.cell.name, str(row.seeds), str(row.cached), str(row.to_train), steps, cost, added, time))
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*text, "", summary(rows)])


def summary(rows: list[PlanRow]) -> str:
    """One line: runs to train, and their cost."""
    runs = sum(row.to_train for row in rows)
    known = [row.in_grid for row in rows if row.in_grid is not None]
    unknown = sum(row.to_train for row in rows if row.cost is None)
    text = f"{runs} of {sum(row.seeds for row in rows)} runs to train, about {sum(known):,.0f} plain steps"
    if unknown:
        text += f" and {unknown} runs of unknown length (size full, dataset not prepared)"
    if any(row.published for row in rows):
        text += " (sets that are not prepared yet with their published numbers of rows)"
    return text

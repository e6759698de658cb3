"""Plan of the grid: what ``dvc repro`` would train and what it costs, in steps of plain fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.disk.reading import read_json
from regft_core.errors import StoreError
from regft_core.names import aligned, duration
from regft_core.schema.method import Method, Phase, optimiser_steps, phase_cost
from regft_core.schema.training import TrainingConfig
from regft_core.settings.project import Cell, Project, cells


@dataclass(frozen=True)
class PlanRow:
    """The plan of one cell: how many ``seeds`` the grid asks for, and of how many the run is ``cached``.

    Attributes:
        rows: training rows of a run; None where they are not known yet.
        steps: optimiser steps of one run's fine-tuning.
        cost: plain-step equivalents of one run, search and trials included.
        published: whether ``rows`` is the published size of a public set that is not prepared yet.
    """

    cell: Cell
    seeds: int
    cached: int
    rows: int | None
    steps: int | None
    cost: float | None
    published: bool = False

    @property
    def to_train(self) -> int:
        return self.seeds - self.cached


def plan_rows(project: Project, cached: Callable[[Cell], set[int]] = lambda cell: set()) -> list[PlanRow]:
    """Return a row for each cell of the grid; ``cached``: its seeds in the run store, by default none."""
    rows, wanted = [], set(project.params.grid.seeds)
    for cell in cells(project):
        prepared = training_rows(project.root, cell)
        count = getattr(project.tasks[cell.task].source, "rows", None) if prepared is None else prepared
        method = project.method(cell.method, cell.task)
        steps = optimiser_steps(method.training, planned_rows(project, cell.task, method.finetune, count))
        cost = run_cost(project, method, cell.task, project.trials(cell.method), count)
        published = prepared is None and count is not None
        rows.append(PlanRow(cell, len(wanted), len(cached(cell) & wanted), count, steps, cost, published))
    return rows


def run_cost(
    project: Project, method: Method, task: str, trials: Sequence[Mapping[str, Any]], rows: int | None
) -> float | None:
    """Return plain-step equivalents of one run and its trials, shared phases once; None when ``rows`` is needed."""
    tuning, shared = project.params.tuning, project.shared(task)

    def planned(method: Method, phase: Phase, shared: TrainingConfig) -> float | None:
        return sized_cost(project, method, task, phase, planned_rows(project, task, phase, rows), shared)

    costs = [planned(method, phase, shared) for phase in method.phases]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    if not trials or tuning is None:
        return sum(known)
    tried: dict[str, float] = {}
    for variant, training in (project.tuned(method.name, task, values) for values in trials):
        for index, phase in enumerate(variant.phases):
            path = repr((training, variant.config.model, variant.phases[: index + 1]))
            if path not in tried:
                tried[path] = planned(variant, phase, training) or 0.0
    redone = tuning.selection == "split"  # else the chosen trial is the run
    return sum(tried.values()) * tuning.share * tuning.rounds + redone * sum(known)


def training_rows(root: Path, cell: Cell) -> int | None:
    """Examples that one run of ``cell`` trains on; None for ``full`` until the dataset is prepared."""
    return prepared_rows(root, cell.task) if cell.size == "full" else cell.size


def prepared_rows(root: Path, task: str, *, unlabelled: bool = False) -> int | None:
    """Training rows of a dataset as last prepared, with the texts of its split ``unlabelled``; None if it never was."""
    try:
        described = read_json(root / "work" / "datasets" / task / "task.json")
    except StoreError:
        return None
    counts = described.get("counts", {})
    return counts.get("train", 0) + (counts.get("unlabelled", 0) if unlabelled else 0) or None


def planned_rows(project: Project, task: str, phase: Phase, rows: int | None) -> int | None:
    """Rows that a member of a phase trains on, in a cell of ``rows`` rows; None before its task is prepared."""
    data = phase.data
    if isinstance(data.size, int):
        rows = data.size
    elif data.task is not None or data.size is not None:
        rows = prepared_rows(project.root, data.task or task, unlabelled=not data.labels)
    return None if rows is None or data.steps == "full" else int(rows * data.split)


def sized_cost(
    project: Project,
    method: Method,
    task: str,
    phase: Phase,
    count: int | None,
    shared: TrainingConfig,
    steps: int | None = None,
) -> float | None:
    """``phase_cost`` with the encoders of the phase, and of those whose answers it learns, in sizes of the task's."""
    registry = project.builder.registry
    size, *teachers = (
        project.relative_size(other, method, task) for other in (phase, *map(method.phase, phase.teachers(registry)))
    )
    return phase_cost(phase, count, registry, shared, size, teachers, steps)


def table(rows: list[PlanRow], seconds: Callable[[Cell], float | None]) -> str:
    """The plan as text, with totals; ``seconds``: of one worker for what a cell still has to train."""
    lines: list[tuple[str, ...]] = [("method", "seeds", "cached", "steps", "plain steps", "time")]
    for row in sorted(rows, key=lambda row: (row.cell.task, str(row.cell.size))):
        if (title := f"{row.cell.task}-{row.cell.size}") not in (line[0] for line in lines):
            lines.append((title, *[""] * 5))
        steps = ["?" if number is None else f"{number:,.0f}" for number in (row.steps, row.cost)]
        left = seconds(row.cell)
        time = "-" if row.to_train == 0 else "?" if left is None else duration(left)
        lines.append((row.cell.method, str(row.seeds), str(row.cached), *steps, time))
    runs, unknown = sum(row.to_train for row in rows), sum(row.to_train for row in rows if row.cost is None)
    known = sum(row.cost * row.to_train for row in rows if row.cost is not None)
    total = f"{runs} of {sum(row.seeds for row in rows)} runs to train, about {known:,.0f} plain steps"
    if unknown:
        total += f" and {unknown} runs of unknown length (size full, dataset not prepared)"
    if any(row.published for row in rows):
        total += " (sets that are not prepared yet with their published numbers of rows)"
    return "\n".join([*aligned(lines), "", total])

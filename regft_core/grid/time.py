"""How long the grid takes: declared passes times the measured seconds of a step, on this machine; else assumed speeds.

Training, what is fitted and the scores on every set are counted; the report and evaluations beyond the scores are not.
What several cells share is counted once (``PlanRow.shared``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regft_core.errors import RegftError
from regft_core.grid.cached import cached_seeds, grid_rows
from regft_core.grid.executors import is_remote, visible_devices
from regft_core.grid.lengths import known_lengths
from regft_core.grid.rates import (
    SPEED,
    RatesOf,
    assumed,
    assumed_here,
    cannot_measure,
    encoder_weights,
    measured,
    trains_on_cpu,
)
from regft_core.models.devices import cores
from regft_core.names import duration, listing, plural
from regft_core.runs.code import one_moment
from regft_core.runs.project import kept_open
from regft_core.runs.run import STAGES
from regft_core.settings.cost import PlanRow
from regft_core.settings.grid import Cell
from regft_core.settings.project import Project


@dataclass(frozen=True)
class Estimate:
    """Time of what is still to train.

    Attributes:
        stages: stage -> seconds on the wall, with as many workers as run at a time.
        cells: cell -> seconds of one worker for its runs that are still to train.
        runs: cell -> seconds of one worker for one seed alone; cells of unknown length are missing.
        unknown: runs of unknown length, which are not counted.
        missing: why nothing was measured, with the remedy; the rates are then assumed. Empty where it was.
        parallel: runs at a time.
        unprepared: tasks whose rows are not counted yet: each row is taken as ``max_length`` tokens, none is evaluated.
    """

    stages: Mapping[str, float]
    cells: Mapping[Cell, float] = field(repr=False)
    runs: Mapping[Cell, float] = field(repr=False)
    unknown: int
    missing: str
    parallel: int
    unprepared: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """On the wall, all stages."""
        return sum(self.stages.values())

    def line(self) -> str:
        """``time: about 14 min: search 1 min, finetune 13 min (measured on this machine, 2 runs at a time)``."""
        why = f"\n  not measured: {self.missing}" if self.missing else ""
        unknown = f"{plural(self.unknown, 'run')} of unknown length (known after `dvc repro subsample`)"
        if not self.cells:
            return "time: nothing to train" if not self.unknown else f"time: not known: {unknown}{why}"
        parts = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in self.stages.items() if seconds)
        where = "measured on this machine" if not self.missing else "assumed speed"
        text = f"{duration(self.seconds)}: {parts or 'no steps'} ({where}, {plural(self.parallel, 'run')} at a time)"
        # A part is never printed as the whole.
        known = f"not known: {unknown}, and for the others " if self.unknown else ""
        if self.unprepared:
            why += (
                f"\n  rows of {listing(self.unprepared)} are not prepared: each counts as max_length tokens, and "
                "evaluation is left out\n    -> dvc repro subsample, then ask again"
            )
        return f"time: {known}about {text}{why}"


def estimate(project: Project, rows: Sequence[PlanRow] | None = None, *, shortest: float = 60.0) -> Estimate:
    """Return the time of a project's grid; measures a step where none was measured on this machine.

    Args:
        rows: of ``grid_rows``; by default what ``work/`` and the run store lack.
        shortest: a grid of fewer seconds on an assumed core is not worth measuring.
    """
    rows = grid_rows(project) if rows is None else rows
    rough = spend(project, rows, assumed_here(project), cannot_measure(project))
    if rough.missing:
        return rough
    if trains_on_cpu(project) and rough.cells and not rough.unknown and rough.seconds < shortest:
        return replace(rough, missing=f"too short (under {duration(shortest)})")
    try:
        unprepared = sorted({row.cell.task for row in rows if known_lengths(project, row.cell.task) is None})
        return replace(spend(project, rows, measured(project)), unprepared=tuple(unprepared))
    except RegftError as error:
        return replace(rough, missing=str(error))


def still_to_train(project: Project, stale: Collection[str]) -> Estimate | None:
    """Return the time of the ``stale_cells`` of a plan; None where their runs are in the run store."""
    every = set(project.params.grid.seeds)
    with one_moment(), kept_open():
        rows = grid_rows(project, lambda c: cached_seeds(project, c) if c.directory in stale else every)
    return estimate(project, rows) if any(row.to_train for row in rows) else None


def spend(project: Project, rows: Sequence[PlanRow], rates: RatesOf, missing: str = "") -> Estimate:
    """Return what the rows' cost takes at some rates; cells without rates are of unknown length."""
    work = {str(stage): 0.0 for stage in STAGES}
    cells: dict[Cell, float] = {}
    runs: dict[Cell, float] = {}
    longest, unknown = dict(work), 0
    for row in rows:
        rate = rates(row.cell) if row.cost is not None and row.search is not None else None
        if rate is None or row.cost is None or row.search is None:
            unknown += row.to_train
            continue
        batch = project.shared(row.cell.task).batch_size * rate.train
        training = project.method(row.cell.method, row.cell.task).training
        epochs = training.epochs * rate.epoch if training.judges_epochs else 0.0
        run = {"search": row.search * batch, "finetune": (row.cost - row.search) * batch + epochs}
        run |= {"evaluate": rate.judge}
        runs[row.cell] = sum(run.values())
        if not row.to_train:
            continue
        cells[row.cell] = 0.0
        for stage, seconds in run.items():
            added = seconds * (1.0 if stage == "evaluate" else 1 - row.shared)
            work[stage] += added * row.to_train
            longest[stage] = max(longest[stage], added)
            cells[row.cell] += added * row.to_train
    parallel = _parallel(project)
    stages = {stage: max(seconds / parallel, longest[stage]) for stage, seconds in work.items()}
    return Estimate(stages, cells, runs, unknown, missing, parallel)


def _parallel(project: Project) -> int:
    """Runs at a time on this machine; more workers than cores gain nothing on a CPU."""
    execution = project.params.execution
    if execution.executor == "serial":
        return 1
    if is_remote(execution.executor):
        return execution.workers
    devices = visible_devices(execution.device)
    most = max(1, cores() // execution.threads) if devices == ["cpu"] else execution.workers * len(devices)
    return min(execution.workers * len(devices), most)


def gpu_hours(project: Project, rows: Sequence[PlanRow]) -> tuple[float, int]:
    """Hours of one GPU of the assumed speed for what is still to train, and runs of unknown length left out."""
    time = spend(project, rows, assumed(project, SPEED[project.params.training.precision]))
    return sum(time.cells.values()) / 3600, time.unknown


def gpu_line(project: Project, rows: Sequence[PlanRow]) -> str:
    """One paragraph: GPU hours of what is still to train, with the assumptions that they rest on."""
    name, precision = project.params.model.name, project.params.training.precision
    weights = encoder_weights(name, project.root)
    if weights is None:
        return f"GPU hours: not known; nothing tells the size of '{name}'"
    count, unknown = gpu_hours(project, rows)
    if unknown and not count:
        return f"GPU hours: not known; {unknown} runs are of unknown length until their dataset is prepared"
    windows = project.params.model.windows
    length = "max_length tokens" if windows == 1 else f"{windows} windows of max_length tokens"
    part = f"not known for {plural(unknown, 'run')} of unknown length; for the others " if unknown else ""
    return (
        f"GPU hours: {part}{shown(count)} (assumed: 6 operations per weight and token of a plain step, {weights:.2g} "
        f"weights in the encoder's layers, every example {length} long, {SPEED[precision] / 1e12:.0f} TFLOP/s "
        f"in {precision} on one A100 or H100; evaluation left out)"
    )


def shown(hours: float) -> str:
    """``about 12``."""
    if hours < 0.1:
        return "less than 0.1" if hours else "none"
    return f"about {hours:.2g}" if hours < 10 else f"about {hours:,.0f}"

"""How long the grid takes: declared passes times the measured seconds of a step, on this machine; else assumed speeds.

One estimator (``spend``) for both. It counts training, what is fitted, and the scores on every set; not the report,
nor evaluations beyond the scores. What several cells share is counted once (``PlanRow.shared``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regft_core.errors import RegftError
from regft_core.grid.assumed import SPEED, encoder_weights
from regft_core.grid.executors import is_remote, visible_devices
from regft_core.grid.in_grid import grid_rows
from regft_core.grid.rates import Measured, RatesOf, assumed, assumed_here, cannot_measure, trains_on_cpu
from regft_core.grid.stored import cached_seeds
from regft_core.models.devices import cores
from regft_core.names import plural
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
        methods: method -> seconds of one worker for its runs that are still to train.
        cells: cell -> the same, for each cell.
        runs: cell -> seconds of one worker for one seed alone; cells of unknown length are missing.
        unknown: runs of unknown length, which are not counted.
        missing: why nothing was measured, with the remedy; the rates are then assumed. Empty where it was.
        parallel: runs at a time.
    """

    stages: Mapping[str, float]
    methods: Mapping[str, float]
    cells: Mapping[Cell, float] = field(repr=False)
    runs: Mapping[Cell, float] = field(repr=False)
    unknown: int
    missing: str
    parallel: int

    @property
    def seconds(self) -> float:
        """On the wall, all stages."""
        return sum(self.stages.values())

    def run_seconds(self, cell: Cell) -> float | None:
        """Seconds of one worker for one seed of a cell; None where its length is not known."""
        return self.runs.get(cell)

    def line(self) -> str:
        """``time: about 14 min: search 1 min, finetune 13 min (measured on this machine, 2 runs at a time)``."""
        unknown = f"{plural(self.unknown, 'run')} of unknown length (known once `dvc repro plan` has prepared the rows)"
        if not self.methods:
            return "time: nothing to train" if not self.unknown else f"time: not known: {unknown}{self._why()}"
        parts = ", ".join(f"{stage} {spoken(seconds)}" for stage, seconds in self.stages.items() if seconds)
        where = "measured on this machine" if not self.missing else "assumed speed"
        text = f"{spoken(self.seconds)}: {parts or 'no steps'} ({where}, {plural(self.parallel, 'run')} at a time)"
        if self.unknown:
            return f"time: not known: {unknown}, and for the others about {text}{self._why()}"
        return f"time: about {text}{self._why()}"

    def _why(self) -> str:
        return f"\n  not measured: {self.missing}" if self.missing else ""


def estimate(project: Project, rows: Sequence[PlanRow] | None = None, *, shortest: float = 60.0) -> Estimate:
    """The time of a project's grid; measures a step of each length where none was measured on this machine.

    Args:
        rows: of ``grid_rows``; by default what ``work/`` and the run store lack.
        shortest: a grid of fewer seconds on an assumed core is not worth measuring.
    """
    rows = grid_rows(project) if rows is None else rows
    rough = spend(project, rows, assumed_here(project), cannot_measure(project))
    if rough.missing:
        return rough
    if trains_on_cpu(project) and rough.methods and not rough.unknown and rough.seconds < shortest:
        return replace(rough, missing=f"too short (under {spoken(shortest)})")
    try:
        return spend(project, rows, Measured(project))
    except RegftError as error:
        return replace(rough, missing=str(error))


def still_to_train(project: Project, stale: Collection[str]) -> Estimate | None:
    """The time of the ``stale_cells`` of a plan; None where their runs are in the run store."""
    every = set(project.params.grid.seeds)
    with one_moment(), kept_open():
        rows = grid_rows(project, lambda c: cached_seeds(project, c) if c.directory in stale else every)
    return estimate(project, rows) if any(row.to_train for row in rows) else None


def spend(project: Project, rows: Sequence[PlanRow], rates: RatesOf, missing: str = "") -> Estimate:
    """What the rows' cost takes at some rates; cells without rates are of unknown length."""
    work = {str(stage): 0.0 for stage in STAGES}
    methods: dict[str, float] = {}
    cells: dict[Cell, float] = {}
    runs: dict[Cell, float] = {}
    longest, start, unknown = dict(work), 0.0, 0
    for row in rows:
        rate = rates(row.cell) if row.cost is not None and row.search is not None else None
        if rate is None or row.cost is None or row.search is None:
            unknown += row.to_train
            continue
        batch = project.shared(row.cell.task).batch_size * rate.train
        training = project.method(row.cell.method, row.cell.task).training
        epochs = training.epochs * rate.epoch if training.judges_epochs else 0.0
        one = {"search": row.search * batch, "finetune": (row.cost - row.search) * batch + epochs + rate.load}
        one |= {"evaluate": rate.judge}
        runs[row.cell] = sum(one.values())
        if not row.to_train:
            continue
        start = max(start, rate.start)
        for stage, seconds in one.items():
            added = 1.0 if stage == "evaluate" else 1 - row.shared
            work[stage] += seconds * row.to_train * added
            longest[stage] = max(longest[stage], seconds * added)
            cells[row.cell] = cells.get(row.cell, 0.0) + seconds * row.to_train * added
        methods[row.cell.method] = methods.get(row.cell.method, 0.0) + cells[row.cell]
    parallel = _parallel(project)
    stages = {stage: max(seconds / parallel, longest[stage]) for stage, seconds in work.items()}
    for stage in ("search", "finetune"):  # evaluations are done by the workers that train
        stages[stage] += start if work[stage] else 0.0
    return Estimate(stages, methods, cells, runs, unknown, missing, parallel)


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


# ---------------------------------------------------------------------------------------- words


def gpu_hours(project: Project, rows: Sequence[PlanRow]) -> tuple[float, int]:
    """Hours of one GPU of the assumed speed for what is still to train, and runs of unknown length left out."""
    found = spend(project, rows, assumed(project, SPEED[project.params.training.precision]))
    return sum(found.methods.values()) / 3600, found.unknown


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


def spoken(seconds: float) -> str:
    """``95 s``, ``14 min``, ``2.5 h``, ``12 days``, ``2.3 years``."""
    hours = seconds / 3600
    if seconds < 100:
        return f"{max(1.0, seconds):.0f} s"
    if hours < 48:
        return f"{seconds / 60:.0f} min" if hours < 1.5 else f"{hours:.1f} h"
    return f"{hours / 24:,.0f} days" if hours < 2 * 8766 else f"{hours / 8766:,.1f} years"

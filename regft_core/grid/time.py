"""How long the grid takes: declared passes times the measured seconds of a step on this machine; else assumed speeds.

Training, fits and the scores on every set are counted; the report and evaluations beyond the scores are not. A training
that several cells share is counted for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from regft_core.data.splits import of_seed
from regft_core.disk.reading import read_json
from regft_core.errors import RegftError
from regft_core.grid.cached import cached_seeds, grid_rows
from regft_core.grid.executors import is_remote, visible_devices
from regft_core.grid.lengths import known_lengths
from regft_core.grid.step_time import CORE_SPEED, GPU_SPEED, StepTime, assumed, measured
from regft_core.hooks import compose
from regft_core.hooks.phase_entries import answers_without_encoder
from regft_core.hooks.registry import discover
from regft_core.models.devices import cores
from regft_core.models.source import encoder_present, encoder_weights
from regft_core.names import duration, listing, plural
from regft_core.runs.run import STAGES
from regft_core.schema.encoder import EncoderConfig
from regft_core.settings.cost import PlanRow
from regft_core.settings.grid import Cell
from regft_core.settings.project import Project

#: A grid of fewer seconds on an assumed core is not worth measuring.
SHORTEST = 60.0


@dataclass(frozen=True)
class SetSize:
    """Rows of a set, and tokens of one on average."""

    rows: float
    tokens: float


#: Task, encoder -> sizes of its sets, ``train`` among them.
Sizes = Callable[[str, EncoderConfig], Mapping[str, SetSize]]


@dataclass(frozen=True)
class Estimate:
    """Time of what is still to train.

    Attributes:
        stages: stage -> seconds on the wall, with as many workers as run at a time.
        cells: cell -> seconds of one worker for its runs that are still to train.
        runs: cell -> seconds of one worker for one seed alone; cells of unknown length are missing.
        unknown: runs of unknown length, which are not counted.
        parallel: runs at a time.
        notes: why the speed is assumed, and what is not counted, with the remedy.
        measured: whether the speed was measured on this machine.
    """

    stages: Mapping[str, float]
    cells: Mapping[Cell, float] = field(repr=False)
    runs: Mapping[Cell, float] = field(repr=False)
    unknown: int
    parallel: int
    notes: tuple[str, ...] = ()
    measured: bool = False

    @property
    def seconds(self) -> float:
        """On the wall, all stages."""
        return sum(self.stages.values())

    def line(self) -> str:
        """``time: about 14 min: search 1 min, finetune 13 min (measured on this machine, 2 runs at a time)``."""
        unknown = f"{plural(self.unknown, 'run')} of unknown length (known after `dvc repro subsample`)"
        if not self.cells:
            text = f"not known: {unknown}" if self.unknown else "nothing to train"
        else:
            parts = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in self.stages.items() if seconds)
            where = "measured on this machine" if self.measured else "assumed speed"
            where = f"{where}, {plural(self.parallel, 'run')} at a time"
            text = f"about {duration(self.seconds)}: {parts or 'no steps'} ({where})"
            if self.unknown:  # a part is never printed as the whole
                text = f"not known: {unknown}, and for the others {text}"
        return "".join([f"time: {text}", *(f"\n  {note}" for note in self.notes if self.cells or self.unknown)])


def estimate(project: Project, rows: Sequence[PlanRow] | None = None, sizes: Sizes | None = None) -> Estimate:
    """Return the time of a project's grid; measures a step where none was measured on this machine.

    Args:
        rows: of ``grid_rows``; by default what ``work/`` and the run store lack.
        sizes: by default those of the prepared rows.
    """
    rows = grid_rows(project) if rows is None else rows
    sizes = cache(sizes or (lambda task, encoder: set_sizes(project, task, encoder)))
    execution = project.params.execution
    remote = is_remote(execution.executor)
    on_cpu = not remote and visible_devices(execution.device) == ["cpu"]
    speed = CORE_SPEED if on_cpu else GPU_SPEED[project.params.training.precision]
    rough = spend(project, rows, lambda cell: assumed(project, cell.task, speed))
    why = ""
    if remote:
        why = f"executor '{execution.executor}' trains on other machines"
    elif absent := [model.name for model in project.every_encoder() if not encoder_present(model, project.root)]:
        why = f"encoder {listing(absent)} is not on this disk\n    -> fetch it: regft fetch; of a preset: --preset NAME"
    elif on_cpu and rough.cells and not rough.unknown and rough.seconds < SHORTEST:
        why = f"too short (under {duration(SHORTEST)})"
    else:
        try:
            timed = spend(project, rows, lambda cell: _measured(project, cell, sizes), sizes)
        except RegftError as error:
            why = str(error)
    if why:
        return replace(rough, notes=(f"not measured: {why}",))
    tasks = sorted({row.cell.task for row in rows})
    unprepared = [task for task in tasks if len(sizes(task, project.model(task))) == 1]
    note = (
        f"rows of {listing(unprepared)} are not prepared: each counts as max_length tokens, and evaluation is left out"
        "\n    -> dvc repro subsample, then ask again"
    )
    return replace(timed, notes=(note,) if unprepared else (), measured=True)


def still_to_train(project: Project, stale: Collection[str]) -> Estimate | None:
    """Return the time of the ``stale_cells`` of a plan; None where their runs are in the run store."""
    every = set(project.params.grid.seeds)
    project = project.snapshot()
    rows = grid_rows(project, lambda c: cached_seeds(project, c) if c.directory in stale else every)
    return estimate(project, rows) if any(row.to_train for row in rows) else None


def spend(
    project: Project, rows: Sequence[PlanRow], times: Callable[[Cell], StepTime | None], sizes: Sizes | None = None
) -> Estimate:
    """Return what the rows' cost takes with the step of each cell; without one it is of unknown length.

    Without ``sizes`` every row counts as ``max_length`` tokens, and none is evaluated.
    """
    registry, sizes = discover(), sizes or unprepared
    stages, longest = ({str(stage): 0.0 for stage in STAGES} for _ in range(2))
    cells: dict[Cell, float] = {}
    runs: dict[Cell, float] = {}
    unknown = 0
    for row in rows:
        cell, method, shared = row.cell, project.method(row.cell.method, row.cell.task), project.shared(row.cell.task)
        free = answers_without_encoder(compose.entries(registry, method.finetune.regularisers)) is not None
        step = StepTime(0.0) if free else None if row.cost is None else times(cell)
        if step is None or row.cost is None or row.search is None:
            unknown += row.to_train
            continue
        training, sets = method.training, sizes(cell.task, method.encoder(project.model(cell.task)))
        update = step.update / (training.batch_size * training.accumulation)
        batch = shared.batch_size * (sets["train"].tokens * step.train + update)
        scores = {name: size.rows * size.tokens * step.predict for name, size in sets.items() if name != "train"}
        epochs = training.epochs * scores.get("dev", 0.0) if training.judges_epochs else 0.0
        run = {"search": row.search * batch, "finetune": (row.cost - row.search) * batch + epochs}
        run |= {"evaluate": sum(scores.values())}
        runs[cell] = sum(run.values())
        if not row.to_train:
            continue
        cells[cell] = row.to_train * runs[cell]
        for stage, seconds in run.items():
            stages[stage] += seconds * row.to_train
            longest[stage] = max(longest[stage], seconds)
    parallel = _parallel(project)
    walls = {stage: max(seconds / parallel, longest[stage]) for stage, seconds in stages.items()}
    return Estimate(walls, cells, runs, unknown, parallel)


def _measured(project: Project, cell: Cell, sizes: Sizes) -> StepTime:
    method = project.method(cell.method, cell.task)
    encoder, length = method.encoder(project.model(cell.task)), 16
    while length < sizes(cell.task, encoder)["train"].tokens:
        length *= 2
    training = project.shared(cell.task).model_copy(update={"precision": method.training.precision})
    return measured(project, encoder, training, min(length, encoder.max_length))


def unprepared(task: str, encoder: EncoderConfig) -> dict[str, SetSize]:
    """Return the size of ``train`` only, with full rows."""
    return {"train": SetSize(0, encoder.max_length * encoder.windows)}


def set_sizes(project: Project, task: str, encoder: EncoderConfig) -> dict[str, SetSize]:
    """Return the size of every set of a task; ``unprepared`` where its rows are."""
    lengths = known_lengths(project, task)
    if lengths is None:
        return unprepared(task, encoder)
    described = read_json(project.root / "work" / "datasets" / task / "task.json")
    rows = {name: one["n"] for name, one in of_seed(described, project.params.grid.seeds[0])["sets"].items()}
    sizes = {}
    for name, modes in lengths["sets"].items():
        apart = encoder.pairs == "separately" and "separately" in modes
        read = modes["separately" if apart else "jointly"]
        most = encoder.max_length * encoder.windows
        median, p95 = (min(most, read[part]) * (2 if apart else 1) for part in ("median", "p95"))
        # The mean of a curve through half the median, the median and the 95th percentile, roughly.
        sizes[name] = SetSize(rows.get(name, 0), 0.6 * median + 0.3 * p95)
    return sizes


def _parallel(project: Project) -> int:
    """Runs at a time on this machine; more workers than cores gain nothing on a CPU."""
    execution = project.params.execution
    if execution.executor == "serial" or is_remote(execution.executor):
        return 1 if execution.executor == "serial" else execution.workers
    devices = visible_devices(execution.device)
    most = max(1, cores() // execution.threads) if devices == ["cpu"] else execution.workers * len(devices)
    return min(execution.workers * len(devices), most)


def gpu_hours(project: Project, rows: Sequence[PlanRow]) -> tuple[float, int]:
    """Hours of one GPU of the assumed speed for what is still to train, and runs of unknown length left out."""
    speed = GPU_SPEED[project.params.training.precision]
    time = spend(project, rows, lambda cell: assumed(project, cell.task, speed))
    return sum(time.cells.values()) / 3600, time.unknown


def gpu_line(project: Project, rows: Sequence[PlanRow]) -> str:
    """One paragraph: GPU hours of what is still to train, with the assumptions that they rest on."""
    precision = project.params.training.precision
    weights = {model.name: encoder_weights(model.name, project.root) for model in project.every_encoder()}
    if no_size := [name for name, count in weights.items() if count is None]:
        return f"GPU hours: not known; nothing tells the size of {listing(no_size)}"
    sizes = " and ".join(f"{count:.2g}" for count in weights.values())
    count, unknown = gpu_hours(project, rows)
    part = f"not known for {plural(unknown, 'run')} of unknown length; for the others " if unknown else ""
    return (
        f"GPU hours: {part}{shown(count)} (assumed: 6 operations per weight and token of a plain step, {sizes} "
        f"weights in the encoder's layers, every row max_length tokens long, {GPU_SPEED[precision] / 1e12:.0f} TFLOP/s "
        f"in {precision} on one A100 or H100; evaluation left out)"
    )


def shown(hours: float) -> str:
    """``about 12``."""
    if hours < 0.1:
        return "less than 0.1" if hours else "none"
    return f"about {hours:.2g}" if hours < 10 else f"about {hours:,.0f}"

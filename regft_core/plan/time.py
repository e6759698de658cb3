"""How long the grid takes: declared passes times the measured seconds of a step, on this machine; else assumed speeds.

One estimator (``spend``) for both. It counts training, what is fitted, and the scores on every set; not the report,
nor evaluations beyond the scores. A phase that all seeds share is counted for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regft_core.config.cost import PlanRow, plan_rows
from regft_core.config.grid import Cell
from regft_core.config.project import Project
from regft_core.config.schema.training import TrainingConfig
from regft_core.config.store_path import store_path
from regft_core.data.drawn import of_seed
from regft_core.errors import RegftError
from regft_core.execution.devices import cores
from regft_core.execution.executors import is_remote, visible_devices
from regft_core.hooks import compose
from regft_core.hooks.exports import answers_without_encoder
from regft_core.hooks.registry import discover
from regft_core.io import read_json
from regft_core.models.source import encoder_present, resolve_model
from regft_core.names import plural
from regft_core.plan.assumed import CORE_SPEED, SPEED, encoder_weights, seconds_per_token
from regft_core.plan.lengths import known_lengths
from regft_core.plan.pool import KEEP_FREED_MEMORY
from regft_core.plan.step_times import StepTimes, buckets, step_times
from regft_core.plan.stored import cached_seeds
from regft_core.run.one_run import STAGES

#: Of the token lengths of a set: a curve through these shares of its rows.
_SHARES = (0.0, 0.5, 0.95, 1.0)
#: Shares at which that curve is read.
_READ = [(index + 0.5) / 20 for index in range(20)]


@dataclass(frozen=True)
class Rates:
    """Seconds of one worker.

    Attributes:
        train: of an example in a plain step: forward, backward, its share of the update.
        judge: of all scores of a finished run.
        epoch: of the scores on dev, where epochs are judged.
        load: of a run until its model is there.
        start: of a worker until its first run.
    """

    train: float
    judge: float = 0.0
    epoch: float = 0.0
    load: float = 0.0
    start: float = 0.0


#: Rates of a cell; None where nothing is known.
RatesOf = Callable[[Cell], Rates | None]


@dataclass(frozen=True)
class Estimate:
    """Time of what is still to train.

    Attributes:
        stages: stage -> seconds on the wall, with as many workers as run at a time.
        methods: method -> seconds of one worker for its runs that are still to train.
        runs: cell -> seconds of one worker for one seed; cells of unknown length are missing.
        unknown: runs of unknown length, which are not counted.
        missing: why nothing was measured, with the remedy; the rates are then assumed. Empty where it was.
        parallel: runs at a time.
    """

    stages: Mapping[str, float]
    methods: Mapping[str, float]
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
        if not self.runs:
            return f"time: not known{self._why()}"
        parts = ", ".join(f"{stage} {spoken(seconds)}" for stage, seconds in self.stages.items() if seconds)
        where = "measured on this machine" if not self.missing else "assumed speed"
        rest = f"; {plural(self.unknown, 'run')} of unknown length not counted" if self.unknown else ""
        return (
            f"time: about {spoken(self.seconds)}: {parts or 'nothing to train'} "
            f"({where}, {plural(self.parallel, 'run')} at a time){rest}{self._why()}"
        )

    def _why(self) -> str:
        return f"\n  not measured: {self.missing}" if self.missing else ""


def estimate(project: Project, rows: Sequence[PlanRow] | None = None, *, shortest: float = 60.0) -> Estimate:
    """The time of a project's grid; measures a step of each length where none was measured on this machine.

    Args:
        rows: of ``plan_rows``; by default what ``work/`` and the run store lack.
        shortest: a grid of fewer seconds on an assumed core is not worth measuring.
    """
    rows = plan_rows(project, discover(), lambda cell: cached_seeds(project, cell)) if rows is None else rows
    execution = project.params.execution
    on_cpu = not is_remote(execution.executor) and visible_devices(execution.device) == ["cpu"]
    speed = CORE_SPEED if on_cpu else SPEED[project.params.training.precision]
    rough = spend(project, rows, assumed(project, speed), _cannot_measure(project))
    if rough.missing:
        return rough
    if on_cpu and rough.methods and not rough.unknown and rough.seconds < shortest:
        return replace(rough, missing=f"too short (under {spoken(shortest)})")
    try:
        return spend(project, rows, _Measured(project))
    except RegftError as error:
        return replace(rough, missing=str(error))


def still_to_train(project: Project, stale: Collection[str]) -> Estimate | None:
    """The time of the ``stale_cells`` of a plan; None where their runs are in the run store."""
    every = set(project.params.grid.seeds)
    rows = plan_rows(project, discover(), lambda c: cached_seeds(project, c) if c.directory in stale else every)
    return estimate(project, rows) if any(row.to_train for row in rows) else None


def spend(project: Project, rows: Sequence[PlanRow], rates: RatesOf, missing: str = "") -> Estimate:
    """What the rows' cost takes at some rates; cells without rates are of unknown length."""
    work = {str(stage): 0.0 for stage in STAGES}
    methods: dict[str, float] = {}
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
        methods[row.cell.method] = methods.get(row.cell.method, 0.0) + runs[row.cell] * row.to_train
        start = max(start, rate.start)
        for stage, seconds in one.items():
            work[stage] += seconds * row.to_train
            longest[stage] = max(longest[stage], seconds)
    parallel = _parallel(project)
    stages = {stage: max(seconds / parallel, longest[stage]) for stage, seconds in work.items()}
    for stage in ("search", "finetune"):  # evaluations are done by the workers that train
        stages[stage] += start if work[stage] else 0.0
    return Estimate(stages, methods, runs, unknown, missing, parallel)


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


def _cannot_measure(project: Project) -> str:
    """Why no step can be measured here; empty where one can."""
    execution, model = project.params.execution, project.params.model
    if is_remote(execution.executor):
        return f"executor '{execution.executor}' trains on other machines"
    if not encoder_present(model, project.root):
        return f"encoder '{model.name}' is not on this disk\n    -> fetch it: regft fetch"
    return ""


# ---------------------------------------------------------------------------------------- rates


def assumed(project: Project, speed: float) -> RatesOf:
    """Rates at ``speed`` operations per second: every example fills all its windows, scores cost nothing."""
    weights = encoder_weights(project.params.model.name, project.root)
    if weights is None:
        return lambda cell: None

    def rates(cell: Cell) -> Rates:
        model = project.model(cell.task)
        return Rates(model.max_length * model.windows * seconds_per_token(weights, speed))

    return rates


class _Measured:
    """Rates from the times of steps, which are measured when a cell first asks for them."""

    def __init__(self, project: Project) -> None:
        self.project, self.registry = project, discover()
        self.device = visible_devices(project.params.execution.device)[0]
        self._tasks: dict[str, dict[str, Any]] = {}

    def __call__(self, cell: Cell) -> Rates:
        method, encoder = self.project.method(cell.method, cell.task), self.project.model(cell.task)
        if answers_without_encoder(compose.entries(self.registry, method.finetune.regularisers)) is not None:
            return Rates(0.0)
        encoder, training = method.encoder(encoder), method.training
        # Tokens beyond max_length are in further windows, which take time like the last tokens that were measured.
        sets = self._sets(cell.task, encoder.pairs, encoder.max_length * encoder.windows)
        # Over both ways to read pairs, so that one measurement serves methods of both.
        whole = self._sets(cell.task, "jointly", encoder.max_length * encoder.windows)
        times = step_times(
            resolve_model(encoder, self.project.root),
            encoder,
            self.project.shared(cell.task).model_copy(update={"precision": training.precision}),
            buckets(max(one["curve"][-1] for one in whole.values()), encoder.max_length),
            device=self.device,
            threads=self.project.params.execution.threads,
            store=store_path(self.project.root, self.project.params),
            environment=KEEP_FREED_MEMORY if self.device == "cpu" else {},
            root=self.project.root,
        )
        return _rates(times, sets, training)

    def _sets(self, task: str, pairs: str, max_length: int) -> dict[str, dict[str, Any]]:
        """Set -> its rows to judge, rows of tokens for each, and the curve of lengths; ``train`` among them."""
        path = self.project.root / "work" / "datasets" / task / "task.json"
        if task not in self._tasks:
            lengths = known_lengths(self.project, task)
            described = of_seed(read_json(path), self.project.params.grid.seeds[0]) if lengths else {}
            self._tasks[task] = {"counts": described.get("sets", {}), "lengths": (lengths or {}).get("sets", {})}
        known = self._tasks[task]
        found: dict[str, dict[str, Any]] = {}
        for name in ("train", *known["counts"]):
            measured = known["lengths"].get(name, {})
            separately = pairs == "separately" and "separately" in measured
            read = measured.get("separately" if separately else "jointly", {})
            curve = [min(max_length, read.get(at, max_length)) for at in ("median", "p95", "longest")]
            count = known["counts"].get(name, {}).get("n", 0)
            found[name] = {"n": count, "rows": 2 if separately else 1, "curve": [curve[0] // 2 or 1, *curve]}
        return found


def _widths(one: Mapping[str, Any], drawn: int) -> list[float]:
    """Lengths of batches of a set, shortest first; of ``drawn`` rows without regard to length the longest counts."""
    return [_between(share ** (1 / drawn), _SHARES, one["curve"]) for share in _READ]


def _between(value: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """The line through points (``xs`` increasing) at ``value``; flat beyond the first, steady beyond the last."""
    if value <= xs[0] or len(xs) == 1:
        return ys[0]
    at = next((i for i in range(1, len(xs)) if value <= xs[i]), len(xs) - 1)
    return ys[at - 1] + (ys[at] - ys[at - 1]) * (value - xs[at - 1]) / (xs[at] - xs[at - 1])


def _rates(times: StepTimes, sets: Mapping[str, Mapping[str, Any]], training: TrainingConfig) -> Rates:
    def row(by_length: Mapping[int, float], one: Mapping[str, Any], drawn: int = 1) -> float:
        lengths = sorted(by_length)
        known = [by_length[length] for length in lengths]
        seconds = [_between(width, lengths, known) for width in _widths(one, drawn)]
        return float(one["rows"] * sum(seconds) / len(seconds))

    drawn = training.batch_size if training.bucket_batches == 1 else 1
    judged = {name: one["n"] * row(times.judge, one) for name, one in sets.items() if name != "train"}
    return Rates(
        train=row(times.train, sets["train"], drawn) + times.update / (training.batch_size * training.accumulation),
        judge=sum(judged.values()),
        epoch=judged.get("dev", 0.0),
        load=times.load,
        start=times.start,
    )


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
    text = (
        f"GPU hours: {shown(count)} (assumed: 6 operations per weight and token of a plain step, {weights:.2g} "
        f"weights in the encoder's layers, every example {length} long, {SPEED[precision] / 1e12:.0f} TFLOP/s "
        f"in {precision} on one A100 or H100; evaluation left out)"
    )
    return text + (f"; {unknown} runs of unknown length not counted" if unknown else "")


def shown(hours: float) -> str:
    """``about 12``."""
    if hours < 0.1:
        return "less than 0.1" if hours else "none"
    return f"about {hours:.2g}" if hours < 10 else f"about {hours:,.0f}"


def spoken(seconds: float) -> str:
    """``95 s``, ``14 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

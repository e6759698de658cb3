"""Seconds of an example of each cell: measured steps of this machine, or an assumed speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regft_core.data.splits import of_seed
from regft_core.grid.assumed import CORE_SPEED, SPEED, encoder_weights, seconds_per_token
from regft_core.grid.executors import is_remote, visible_devices
from regft_core.grid.lengths import known_lengths
from regft_core.grid.pool import KEEP_FREED_MEMORY
from regft_core.grid.step_times import StepTimes, buckets, step_times
from regft_core.hooks import compose
from regft_core.hooks.exports import answers_without_encoder
from regft_core.hooks.registry import discover
from regft_core.io.reading import read_json
from regft_core.models.source import encoder_present, resolve_model
from regft_core.schema.training import TrainingConfig
from regft_core.settings.grid import Cell
from regft_core.settings.project import Project
from regft_core.settings.store_path import store_path

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


def cannot_measure(project: Project) -> str:
    """Why no step can be measured here; empty where one can."""
    execution, model = project.params.execution, project.params.model
    if is_remote(execution.executor):
        return f"executor '{execution.executor}' trains on other machines"
    if not encoder_present(model, project.root):
        return f"encoder '{model.name}' is not on this disk\n    -> fetch it: regft fetch; of a preset: --preset NAME"
    return ""


def assumed(project: Project, speed: float) -> RatesOf:
    """Rates at ``speed`` operations per second: every example fills all its windows, scores cost nothing."""
    weights = encoder_weights(project.params.model.name, project.root)
    if weights is None:
        return lambda cell: None

    def rates(cell: Cell) -> Rates:
        model = project.model(cell.task)
        return Rates(model.max_length * model.windows * seconds_per_token(weights, speed))

    return rates


def trains_on_cpu(project: Project) -> bool:
    """Whether runs are computed here, on the processor."""
    execution = project.params.execution
    return not is_remote(execution.executor) and visible_devices(execution.device) == ["cpu"]


def assumed_here(project: Project) -> RatesOf:
    """``assumed`` at the speed of a core, or of a GPU where runs use one."""
    on_cpu = trains_on_cpu(project)
    return assumed(project, CORE_SPEED if on_cpu else SPEED[project.params.training.precision])


def known(project: Project) -> RatesOf:
    """Rates without measuring: from steps that were measured here before, else at an assumed speed."""
    rough = assumed_here(project)
    if cannot_measure(project):
        return rough
    measured = Measured(project, measure_now=False)
    return lambda cell: measured(cell) or rough(cell)


class Measured:
    """Rates from the times of steps, which are measured when a cell first asks for them.

    With ``measure_now=False`` a cell whose steps were not measured before has none.
    """

    def __init__(self, project: Project, *, measure_now: bool = True) -> None:
        self.project, self.registry, self._measure_now = project, discover(), measure_now
        self.device = visible_devices(project.params.execution.device)[0]
        self._tasks: dict[str, dict[str, Any]] = {}

    def __call__(self, cell: Cell) -> Rates | None:
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
            measure_now=self._measure_now,
        )
        return None if times is None else rates_of(times, sets, training)

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


def rates_of(times: StepTimes, sets: Mapping[str, Mapping[str, Any]], training: TrainingConfig) -> Rates:
    """Seconds of a training step and of an evaluated row, for the lengths of a task's texts."""

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

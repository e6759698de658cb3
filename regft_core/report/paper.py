"""A paper's table and the runs here: where each of its numbers is here, and our mean of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regft_core import metrics
from regft_core.evaluate.analysis_result import RUN
from regft_core.models.fetch import ALIASES
from regft_core.report.values import Block
from regft_core.schema.params import ReportConfig, split_part, weights_of
from regft_core.settings.encoders import Encoder, between_phases, in_directory, named
from regft_core.settings.published import PublishedConfig, PublishedRow
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, in points or the column's unit; None where nobody says."""

    value: float
    deviation: float | None = None
    seeds: int | None = None


@dataclass(frozen=True, eq=False)
class Place:
    """Where one column of a task is here, with its weight in a number; ``otherwise``: why it is another experiment."""

    block: Block
    arm: str
    set: str
    metric: str
    estimate: Estimate
    weight: float
    otherwise: tuple[str, ...]

    @property
    def scale(self) -> float:
        """Points of the number that one unit of the metric is."""
        return self.weight * metrics.find(self.metric).factor


Places = Sequence[Place]


class Paper:
    def __init__(
        self, config: PublishedConfig, blocks: Sequence[Block], report: ReportConfig, seeds: Sequence[int]
    ) -> None:
        self.config, self.blocks, self.report, self.seeds = config, blocks, report, seeds
        #: By block, set, metric and methods: claims ask for a pair at several levels.
        self.resampled: dict[tuple[str, ...], Arms] = {}
        self._starts = [self._start(name, key) for name in config.encoders for key in [*config.metrics, ""]]

    def _start(self, name: str, key: str) -> Encoder:
        """Return the encoder of the paper's runs of a column."""
        entry = self.config.encoders[name]
        return named(entry.instead.get(key) or entry.model or name)

    def weights(self, key: str) -> dict[str, float]:
        """Columns of tasks -> their weight in the column ``key``; empty for a column that is nothing here."""
        column = self.config.columns[key]
        if column.mean_of is None:
            return {key: 1.0} if column.metric is not None else {}
        parts = weights_of(column.mean_of).items()
        weights = {task if name == "dev" else f"{task}/{name}": weight for (task, name), weight in parts}
        return weights if set(weights) <= set(self.config.metrics) else {}

    def ends(self, key: str) -> tuple[float, float]:
        parts = [(weight, metrics.find(self.config.metrics[part])) for part, weight in self.weights(key).items()]
        if not parts:
            return -math.inf, math.inf
        low, high = (sum(weight * of.factor * of.range[end] for weight, of in parts) for end in (0, 1))
        return low, high

    def printed_parts(self, row: PublishedRow, key: str) -> list[tuple[float, int]]:
        """(variance of the mean, seeds) of what is printed; of a mean by its parts' deviations, else by its own."""
        seeds, weights = self.config.seeds, self.weights(key)
        if seeds is None or seeds < 2:
            return []
        if weights and set(weights) <= set(row.deviations):
            return [(share**2 * row.deviations[part] ** 2 / seeds, seeds) for part, share in weights.items()]
        return [(row.deviations[key] ** 2 / seeds, seeds)] if key in row.deviations else []

    def places(self, arm: str, encoder: str, size: str, key: str) -> Places | str:
        """Where the number of a column is here, or why it is nowhere."""
        places = []
        for part, weight in self.weights(key).items():
            if isinstance(place := self._place(arm, part, weight, self._start(encoder, part), size), str):
                return place
            places.append(place)
        return places or "it is no score of a task here"

    def _place(self, arm: str, key: str, weight: float, encoder: Encoder, size: str) -> Place | str:
        """Return our runs for the rows that they fit; where they fit none, for all, marked as another experiment."""
        (task, name), metric, otherwise = split_part(key), self.config.metrics[key], []
        here = {block.size: block for block in self.blocks if block.task == task}
        if not here:
            return f"{task} was not run here"
        if size not in here:
            if any(str(row.size) in here for row in self.config.rows):
                return f"{task} was not run with {rows_of(size)}"
            shown = max(here, key=lambda other: (other == "full", len(other), other))
            otherwise.append(f"trained on {rows_of(shown)} here, on {rows_of(size)} in the paper")
            size = shown
        block = here[size]
        if arm not in block.cells:
            return f"{arm} was not run here"
        arm = self._started_from(encoder, block, arm)
        mine = self._encoder(block, arm)
        if not mine.same(encoder):
            start = Encoder(mine.name)
            if not start.same(Encoder(encoder.name)) and any(start.same(Encoder(e.name)) for e in self._starts):
                return f"{mine.title} was run here, not {encoder.title}"
            otherwise.append(f"another encoder: {mine.title} here, {encoder.title} in the paper")
        if (row := block.row(arm)) is None or not row.n_ok:
            return f"no run of {arm} on {task} finished"
        if metric not in row.scores.get(name, {}):
            return f"another metric: {name} of {task} was not evaluated by {metric} here"
        return Place(block, arm, name, metric, row.scores[name][metric].estimate, weight, tuple(otherwise))

    def _encoder(self, block: Block, arm: str) -> Encoder:
        manifest = block.cells[arm].finetune
        name, config = manifest.model["name"], manifest.encoder
        local = manifest.model["revision"] is None and name not in ALIASES and bool(config)
        start = in_directory(name, config) if local else named(name)
        phases = {phase: manifest.settings["phases"][phase] for phase in manifest.phases}
        return start.after(*between_phases(phases, block.task))

    def _started_from(self, encoder: Encoder, block: Block, arm: str) -> str:
        """``arm``, or the method that is the same after a phase on the tasks that ``encoder`` was trained on."""
        last = {name: cell.finetune.regularisers["finetune"] for name, cell in block.cells.items()}
        fits = (name for name in [arm, *last] if last[name] == last[arm] and self._encoder(block, name).same(encoder))
        return next(fits, arm)


def mean_of(places: Places) -> tuple[Mean, list[tuple[float, int]]]:
    """Our weighted mean in points, and (variance of the mean, seeds) of every part; no parts below two seeds."""
    estimates = [(place.estimate, place.scale) for place in places]
    value, seeds = sum(scale * e.mean for e, scale in estimates), min(e.n for e, _ in estimates)
    if seeds < 2:
        return Mean(value, None, seeds), []
    parts = [(scale**2 * e.seed_deviation**2 / e.n, e.n) for e, scale in estimates]
    return Mean(value, math.sqrt(sum(variance * n for variance, n in parts)), seeds), parts


def numbers_of(places: Places, evaluation: str, name: str) -> tuple[dict[int, float], float, float]:
    """Seed -> the weighted mean of a number of an evaluation, for seeds that all places have; the ends of its range."""
    parts, ends = list[dict[int, float]](), [0.0, 0.0]
    for place in places:
        runs = finding.runs if (finding := place.block.cells[place.arm].evaluations.get(evaluation)) else ()
        scalars = {run.seed: run.scalars.get(RUN, {}) | run.scalars.get("dev", {}) for run in runs}
        parts.append({seed: place.weight * own[name] for seed, own in scalars.items() if name in own})
        declared = next((run.ranges[name] for run in runs if name in run.ranges), [None, None])
        for at, (end, free) in enumerate(zip(declared, (-math.inf, math.inf))):
            ends[at] += place.weight * (free if end is None else end)
    values = {seed: sum(part[seed] for part in parts) for seed in parts[0] if all(seed in part for part in parts)}
    return values, ends[0], ends[1]


def rows_of(size: str) -> str:
    return "all rows" if size == "full" else f"{size} rows"

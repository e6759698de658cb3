"""A table of a paper and the runs here: where each of its numbers is here, and gains of methods that ran."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from regft_core import metrics
from regft_core.evaluate.analysis_result import RUN
from regft_core.models.fetch import ALIASES
from regft_core.names import plural
from regft_core.report import scores
from regft_core.report.averages import replicates_of
from regft_core.report.values import Block
from regft_core.schema.params import ReportConfig, split_part, weights_of
from regft_core.settings.papers.encoders import Encoder, between_phases, in_directory, named
from regft_core.settings.papers.published import PublishedConfig, PublishedRow
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate, percentiles
from regft_core.statistics.power import detectable_gain
from regft_core.statistics.reproduction import Bounds


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, in points or the column's unit; None where nobody says."""

    value: float
    deviation: float | None = None
    seeds: int | None = None


@dataclass(frozen=True, eq=False)
class Place:
    """Where one column of a task is here; ``otherwise``: what makes it another experiment than the paper's."""

    block: Block
    arm: str
    set: str
    metric: str
    otherwise: tuple[str, ...]

    @property
    def estimate(self) -> Estimate:
        """The score over seeds, in the metric's own unit."""
        row = self.block.row(self.arm)
        assert row is not None
        return row.scores[self.set][self.metric].estimate


#: Columns with their weights in a number.
Places = Sequence[tuple[Place, float]]


@dataclass(frozen=True)
class Gain:
    """A gain of one method over another, positive where it is better.

    Attributes:
        ours: in points, or the logarithm of a ratio; None without a seed that both finished.
        seeds: that both finished.
        detectable: smallest true gain that these runs detect 80% of the time.
        notes: what a reader must know of it.
    """

    ours: Bounds | None
    seeds: int
    detectable: float = math.nan
    notes: tuple[str, ...] = ()


class Paper:
    """A table of a paper (``config``) with the blocks that ran here."""

    def __init__(
        self, config: PublishedConfig, blocks: Sequence[Block], report: ReportConfig, seeds: Sequence[int]
    ) -> None:
        self.config, self.report = config, report
        self._blocks, self._seeds = blocks, seeds
        self._starts = [self._start(name, key) for name in config.encoders for key in [*config.metrics, ""]]
        self._arms: dict[tuple[str, ...], Arms] = {}

    # ------------------------------------------------------------------------------------ as printed

    def _start(self, name: str, key: str) -> Encoder:
        """Return the encoder of the paper's runs of a column."""
        entry = self.config.encoders[name]
        return named(entry.instead.get(key) or entry.model or name)

    def _weights(self, key: str) -> dict[str, float]:
        """Columns of tasks -> their weight in the column ``key``; empty for a column that is nothing here."""
        column = self.config.columns[key]
        if column.mean_of is None:
            return {key: 1.0} if column.metric is not None else {}
        parts = weights_of(column.mean_of).items()
        weights = {task if name == "dev" else f"{task}/{name}": weight for (task, name), weight in parts}
        return weights if set(weights) <= set(self.config.metrics) else {}

    def printed_gain(self, row: PublishedRow, base: PublishedRow, key: str) -> float | None:
        """The printed gain of ``row`` over ``base``: of their scores (misprints recomputed), or as printed."""
        if key in row.scores and key in base.scores:
            return row.recomputed.get(key, row.scores[key]) - base.recomputed.get(key, base.scores[key])
        return row.gains.get(key) if row.gain_over == base.method else None

    def printed_parts(self, row: PublishedRow, key: str) -> list[tuple[float, int]]:
        """(variance of the mean, seeds) of what is printed; of a mean by its parts' deviations, else by its own.

        The printed deviation of a mean may be the mean of its parts' deviations, which is never smaller.
        """
        seeds, weights = self.config.seeds, self._weights(key)
        if seeds is None or seeds < 2:
            return []
        if weights and set(weights) <= set(row.deviations):
            return [(share**2 * row.deviations[part] ** 2 / seeds, seeds) for part, share in weights.items()]
        return [(row.deviations[key] ** 2 / seeds, seeds)] if key in row.deviations else []

    # ---------------------------------------------------------------------------------------- as run

    def places(self, arm: str, encoder: str, size: str, key: str) -> Places | str:
        """Where the number of a column is here, or why it is nowhere."""
        places = []
        for part, weight in self._weights(key).items():
            place = self._place(arm, part, self._start(encoder, part), size)
            if isinstance(place, str):
                return place
            places.append((place, weight))
        return places or "it is no score of a task here"

    def _place(self, arm: str, key: str, encoder: Encoder, size: str) -> Place | str:
        """Return our runs for the rows that they fit; where they fit none, for all, marked as another experiment."""
        (task, name), metric, otherwise = split_part(key), self.config.metrics[key], []
        here = {block.size: block for block in self._blocks if block.task == task}
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
        row = block.row(arm)
        if row is None or not row.n_ok:
            return f"no run of {arm} on {task} finished"
        if name not in row.scores:
            return f"{task} was not evaluated on {name} here"
        if metric not in row.scores[name]:
            return f"another metric: {name} of {task} was not evaluated by {metric} here"
        return Place(block, arm, name, metric, tuple(otherwise))

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

    def mean(self, places: Places) -> tuple[Mean, list[tuple[float, int]]]:
        """Our weighted mean in points, and (variance of the mean, seeds) of every part; no parts below two seeds."""
        value, parts = 0.0, []
        for place, weight in places:
            estimate, scale = place.estimate, weight * metrics.find(place.metric).factor
            value += scale * estimate.mean
            parts.append((scale**2 * estimate.seed_deviation**2 / estimate.n, estimate.n))
        seeds = min(n for _, n in parts)
        if seeds < 2:
            return Mean(value, None, seeds), []
        return Mean(value, math.sqrt(sum(variance * n for variance, n in parts)), seeds), parts

    def values(self, places: Places) -> dict[int, float]:
        """Seed -> our weighted mean in points."""
        return _everywhere(
            {seed: weight * metrics.find(place.metric).factor * value for seed, value in place.estimate.by_seed.items()}
            for place, weight in places
        )

    def numbers(self, places: Places, evaluation: str, name: str) -> dict[int, float]:
        """Seed -> the weighted mean of a number of an evaluation."""
        parts: list[dict[int, float]] = []
        for place, weight in places:
            finding = place.block.cells[place.arm].evaluations.get(evaluation)
            runs = finding.runs if finding is not None else ()
            scalars = {run.seed: run.scalars.get(RUN, {}) | run.scalars.get("dev", {}) for run in runs}
            parts.append({seed: weight * own[name] for seed, own in scalars.items() if name in own})
        return _everywhere(parts)

    def cost_ratios(self, arm: str, over: str, size: str, quantity: str) -> dict[str, float]:
        """Task -> passes or peak memory of ``arm`` over those of ``over`` at a size, where both are known."""
        ratios = {}
        for block in self._blocks:
            rows = [row for row in map(block.row, (arm, over)) if row is not None]
            costs = [row.cost.declared if quantity == "passes" else row.cost.peak_memory_bytes for row in rows]
            if block.size == size and len(costs) == 2 and costs[0] and costs[1]:
                ratios[block.task] = costs[0] / costs[1]
        return ratios

    def _pair(self, place: Place, other: str) -> Arms:
        key = (place.block.name, place.set, place.metric, place.arm, other)
        if key not in self._arms:
            of = (place.block, place.set, place.metric, self.report, self._seeds)
            self._arms[key] = scores.arms_of(*of, (place.arm, other))
        return self._arms[key]

    def gain(self, arm: Places, over: Places, confidence: float) -> Gain:
        """``arm`` minus ``over`` on the same columns, paired by seed, in points.

        The interval is the report's two-level one. Beyond the report's confidence, where a bootstrap has few resamples,
        it is the wider of that and of a normal interval (as in ``statistics/over_tasks.py``).
        """
        estimates: dict[tuple[str, str], Estimate] = {}
        weights: dict[tuple[str, str], float] = {}
        reach, collapsed, identical = 0.0, 0, True
        for (place, weight), (other, _) in zip(arm, over, strict=True):
            names, described = (place.arm, other.arm), metrics.find(place.metric)
            pair, key = self._pair(place, other.arm), (place.block.task, place.set)
            estimates[key] = pair.difference(*names, confidence)
            weights[key] = weight * described.factor * (-1 if described.lower_is_better else 1)
            reach += abs(weights[key]) * described.largest_difference
            identical = identical and pair.identical(*names)
            if place.set == "dev":
                collapsed += sum(len(row.collapsed) for row in map(place.block.row, names) if row is not None)
        seeds, excluded = min(e.n for e in estimates.values()), max(len(e.excluded) for e in estimates.values())
        notes = ("both methods give the same answers",) * identical
        notes += (f"{plural(excluded, 'seed')} left out, which a method did not finish",) * bool(excluded)
        notes += (f"{plural(collapsed, 'run')} collapsed",) * bool(collapsed)
        if not seeds:
            return Gain(None, 0, notes=notes)
        value, replicates = replicates_of(weights, estimates)
        if seeds < 2:
            return Gain(Bounds(value), seeds, notes=notes)
        low, high = percentiles(replicates, confidence)
        if confidence > self.report.confidence:
            half = NormalDist().inv_cdf((1 + confidence) / 2) * float(np.std(replicates))
            low, high = min(low, value - half), max(high, value + half)
        deviation, error = (
            math.sqrt(sum((weights[key] * getattr(estimate, part)) ** 2 for key, estimate in estimates.items()))
            for part in ("seed_deviation", "standard_error_examples")
        )
        # The quantiles of few distinct resamples may miss the mean by rounding.
        bounds = Bounds(value, min(max(low, -reach), value), max(min(high, reach), value))
        return Gain(bounds, seeds, detectable_gain(seeds, deviation, error, confidence=confidence), notes)


def _everywhere(parts: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Seed -> the sum of its parts, for seeds that all of them have."""
    first, *others = parts
    return {s: value + sum(part[s] for part in others) for s, value in first.items() if all(s in p for p in others)}


def rows_of(size: str) -> str:
    """A training size in words."""
    return "all rows" if size == "full" else f"{size} rows"

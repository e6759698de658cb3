"""A table of a paper with ours in its cells, and its claims with their verdicts; where ours are, and our gains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from regft_core import metrics
from regft_core.evaluate.analysis_result import RUN
from regft_core.models.aliases import ALIASES
from regft_core.names import plural
from regft_core.report import scores
from regft_core.report.averages import replicates_of
from regft_core.report.model import Block
from regft_core.schema.params import ReportConfig, split_part, weights_of
from regft_core.settings.papers.encoders import Encoder, between_phases, in_directory, named
from regft_core.settings.papers.published import Claim, PublishedConfig, PublishedRow
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate, percentiles
from regft_core.statistics.power import detectable_gain
from regft_core.statistics.reproduction import Bounds, Outcome


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, in points or the column's unit; None where nobody says."""

    value: float
    deviation: float | None = None
    seeds: int | None = None


@dataclass(frozen=True)
class PrintedCell:
    """A number that the paper prints for one column, and ours."""

    key: str
    #: None where the paper prints no mean here.
    published: Mean | None
    #: None when it was not run here; ``why`` says the reason.
    ours: Mean | None = None
    #: Ours minus published, with its interval (NaN where nothing is known of the spread); None in another experiment.
    difference: Bounds | None = None
    #: Whether the paper prints a gain in the cell; gains over its row or over the reference, within each source.
    gain_printed: bool = False
    published_gain: float | None = None
    our_gain: float | None = None
    #: What makes ours another experiment than the paper's.
    otherwise: tuple[str, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def printed(self) -> bool:
        """Whether the paper prints anything in the cell."""
        return self.published is not None or self.gain_printed


@dataclass(frozen=True)
class PrintedRow:
    """A row of the paper's file with its cells."""

    row: PublishedRow
    cells: tuple[PrintedCell, ...]

    @property
    def ran(self) -> bool:
        """Whether any of it was run here."""
        return any(cell.ours is not None for cell in self.cells)


@dataclass(frozen=True)
class Tested:
    """One column of a claim against one opponent."""

    over: str
    key: str
    word: Outcome
    #: Gains in the claim's direction: points, or natural logarithms of ratios of deviations.
    printed: Bounds | None
    ours: Bounds | None = None
    seeds: int = 0
    #: Smallest true gain that this run finds 80% of the time.
    detectable: float = math.nan
    #: Why it was not tested.
    why: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on one claim with one encoder at one training size."""

    claim: Claim
    encoder: str
    size: str
    word: Outcome
    #: Of the intervals that gave the verdict.
    confidence: float
    tested: tuple[Tested, ...]
    #: Encoders and sizes of the claim that did not run here.
    elsewhere: tuple[str, ...]


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper, with ours beside it."""

    name: str
    where: str
    what: str
    statistic: str
    #: Whether the paper prints the columns as rows.
    transposed: bool
    #: (name, its metric, ``mean`` or its unit)
    columns: tuple[tuple[str, str], ...]
    rows: tuple[PrintedRow, ...]
    claims: tuple[ClaimVerdict, ...]
    #: Why nothing can be compared; empty when something is.
    nothing: str
    #: Why ours is another experiment than the paper's.
    otherwise: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where one column of a task is here; ``otherwise``: what makes it another experiment than the paper's."""

    block: int
    arm: str
    set: str
    metric: str
    otherwise: tuple[str, ...]


#: Columns with their weights in a number.
Places = Sequence[tuple[Place, float]]


class Paper:
    """A table of a paper (``config``) with the blocks that ran here."""

    def __init__(
        self, config: PublishedConfig, blocks: Sequence[Block], report: ReportConfig,
        seeds: Sequence[int],
    ) -> None:  # fmt: skip
        self.config, self.report = config, report
        self._blocks, self._seeds = blocks, seeds
        self.sizes = list(dict.fromkeys(str(row.size) for row in config.rows))
        self._starts = [self._start(name, key) for name in config.encoders for key in [*config.metrics, ""]]
        self._pair = lru_cache(maxsize=None)(self._resampled)

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
        here = {block.size: i for i, block in enumerate(self._blocks) if block.task == task}
        if not here:
            return f"{task} was not run here"
        if size not in here:
            if any(other in here for other in self.sizes):
                return f"{task} was not run with {_rows(size)}"
            shown = max(here, key=lambda other: (other == "full", len(other), other))
            otherwise.append(f"trained on {_rows(shown)} here, on {_rows(size)} in the paper")
            size = shown
        index = here[size]
        if arm not in self._blocks[index].cells:
            return f"{arm} was not run here"
        arm = self._started_from(encoder, index, arm)
        mine = self._encoder(index, arm)
        if not mine.same(encoder):
            start = Encoder(mine.name)
            if not start.same(Encoder(encoder.name)) and any(start.same(Encoder(e.name)) for e in self._starts):
                return f"{mine.title} was run here, not {encoder.title}"
            otherwise.append(f"another encoder: {mine.title} here, {encoder.title} in the paper")
        row = self._blocks[index].row(arm)
        if row is None or not row.n_ok:
            return f"no run of {arm} on {task} finished"
        if name not in row.scores:
            return f"{task} was not evaluated on {name} here"
        if metric not in row.scores[name]:
            return f"another metric: {name} of {task} was not evaluated by {metric} here"
        return Place(index, arm, name, metric, tuple(otherwise))

    def _encoder(self, block: int, arm: str) -> Encoder:
        manifest = self._blocks[block].cells[arm].finetune
        name, config = manifest.model["name"], manifest.encoder
        local = manifest.model["revision"] is None and name not in ALIASES and bool(config)
        start = in_directory(name, config) if local else named(name)
        phases = {phase: manifest.settings["phases"][phase] for phase in manifest.phases}
        return start.after(*between_phases(phases, self._blocks[block].task))

    def _started_from(self, encoder: Encoder, block: int, arm: str) -> str:
        """``arm``, or the method that is the same after a phase on the tasks that ``encoder`` was trained on."""
        cells = self._blocks[block].cells

        def fits(name: str) -> bool:
            first, second = (cells[method].finetune.regularisers["finetune"] for method in (name, arm))
            return self._encoder(block, name).same(encoder) and first == second

        return arm if fits(arm) else next(filter(fits, cells), arm)

    def mean(self, places: Places) -> tuple[Mean, list[tuple[float, int]]]:
        """Our weighted mean in points, and (variance of the mean, seeds) of every part; no parts below two seeds."""
        value, parts = 0.0, []
        for place, weight in places:
            estimate, scale = self._estimate(place), weight * metrics.find(place.metric).factor
            value += scale * estimate.mean
            parts.append((scale**2 * estimate.seed_deviation**2 / estimate.n, estimate.n))
        seeds = min(n for _, n in parts)
        if seeds < 2:
            return Mean(value, None, seeds), []
        return Mean(value, math.sqrt(sum(variance * n for variance, n in parts)), seeds), parts

    def numbers(self, places: Places, evaluation: str, name: str) -> dict[int, float]:
        """Seed -> the weighted mean of a number of an evaluation, for seeds that have it everywhere."""
        parts: list[dict[int, float]] = []
        for place, weight in places:
            finding = self._blocks[place.block].cells[place.arm].evaluations.get(evaluation)
            runs = finding.runs if finding is not None else ()
            scalars = {run.seed: run.scalars.get(RUN, {}) | run.scalars.get("dev", {}) for run in runs}
            parts.append({seed: weight * own[name] for seed, own in scalars.items() if name in own})
        return {seed: sum(part[seed] for part in parts) for seed in parts[0] if all(seed in part for part in parts)}

    def values(self, places: Places) -> list[float]:
        """Our weighted mean of each seed that all columns have, in points."""
        parts = []
        for place, weight in places:
            estimate, scale = self._estimate(place), weight * metrics.find(place.metric).factor
            parts.append({seed: scale * value for seed, value in zip(estimate.seeds, estimate.values, strict=True)})
        return [sum(part[seed] for part in parts) for seed in parts[0] if all(seed in part for part in parts)]

    def _estimate(self, place: Place) -> Estimate:
        row = self._blocks[place.block].row(place.arm)
        assert row is not None
        return row.scores[place.set][place.metric].estimate

    def cost_ratios(self, arm: str, over: str, size: str, quantity: str) -> dict[str, float]:
        """Task -> passes or peak memory of ``arm`` over those of ``over`` at a size, where both are known."""
        ratios = {}
        for block in self._blocks:
            rows = [row for row in map(block.row, (arm, over)) if row is not None]
            costs = [row.cost.declared if quantity == "passes" else row.cost.peak_memory_bytes for row in rows]
            if block.size == size and len(costs) == 2 and costs[0] and costs[1]:
                ratios[block.task] = costs[0] / costs[1]
        return ratios

    def _resampled(self, place: Place, other: str) -> Arms:
        block = self._blocks[place.block]
        return scores.arms_of(block, place.set, place.metric, self.report, self._seeds, (place.arm, other))

    def gain(self, arm: Places, over: Places, confidence: float) -> Tested:
        """``arm`` minus ``over`` on the same columns, paired by seed, in points, as gains count: positive is better.

        The interval is the report's two-level one. Beyond the report's confidence, where a bootstrap has few resamples,
        it is the wider of that and of a normal interval (as in ``statistics/over_tasks.py``).
        """
        estimates: dict[tuple[str, str], Estimate] = {}
        weights: dict[tuple[str, str], float] = {}
        reach, collapsed, identical = 0.0, 0, True
        for (place, weight), (other, _) in zip(arm, over, strict=True):
            names, block, described = (place.arm, other.arm), self._blocks[place.block], metrics.find(place.metric)
            pair, key = self._pair(place, other.arm), (block.task, place.set)
            estimates[key] = pair.difference(*names, confidence)
            weights[key] = weight * described.factor * (-1 if described.lower_is_better else 1)
            reach += abs(weights[key]) * described.largest_difference
            identical = identical and pair.identical(*names)
            if place.set == "dev":
                collapsed += sum(len(row.collapsed) for row in map(block.row, names) if row is not None)
        seeds, excluded = min(e.n for e in estimates.values()), max(len(e.excluded) for e in estimates.values())
        notes = ["both methods give the same answers"] * identical
        notes += [f"{plural(excluded, 'seed')} left out, which a method did not finish"] * bool(excluded)
        notes += [f"{plural(collapsed, 'run')} collapsed"] * bool(collapsed)
        tested = Tested("", "", "not shown", None, None, seeds, notes=tuple(notes))
        if not seeds:
            return tested
        value, replicates = replicates_of(weights, estimates)
        if seeds < 2:
            return replace(tested, ours=Bounds(value))
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
        return replace(tested, ours=bounds, detectable=detectable_gain(seeds, deviation, error, confidence=confidence))


def _rows(size: str) -> str:
    return "all rows" if size == "full" else f"{size} rows"

"""What ran here, as the cells and claims of a paper's table ask for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from regft_core import metrics
from regft_core.models.aliases import ALIASES
from regft_core.names import plural
from regft_core.report import scores
from regft_core.report.averages import replicates_of
from regft_core.report.model import Block
from regft_core.report.published.model import Mean, Tested
from regft_core.report.read_grid import BlockData
from regft_core.schema.report import ReportConfig
from regft_core.settings.checks.report_sets import split_part
from regft_core.settings.papers.encoders import Encoder, between_phases, in_directory, named
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.power import detectable_gain
from regft_core.statistics.reproduction import Bounds


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


class Ours:
    """The blocks of the report, asked by arm, column, encoder and size."""

    def __init__(
        self, data: Sequence[BlockData], blocks: Sequence[Block], config: ReportConfig, seeds: Sequence[int]
    ) -> None:
        self.config = config
        self._data, self._blocks, self._seeds = data, blocks, seeds
        self._pairs: dict[tuple[Place, str], Arms] = {}

    def _encoder(self, block: int, arm: str) -> Encoder | None:
        cell, task = self._data[block].cells[arm], self._data[block].task
        model = cell.finetune.model
        if model is None:
            return None
        local = model.revision is None and model.name not in ALIASES and bool(model.config)
        start = in_directory(model.name, model.config) if local else named(model.name)
        return start.after(*between_phases(cell.finetune.method, task))

    def place(
        self, arm: str, key: str, metric: str, encoder: Encoder, size: str, sizes: Sequence[str],
        encoders: Sequence[Encoder],
    ) -> Place | str:  # fmt: skip
        """Return where ``arm`` on a column is here, or why it is nowhere.

        Args:
            sizes, encoders: of all rows of the table. What ran here stands in the rows that it fits. When it fits none,
                it stands in all of them, marked as another experiment.
        """
        task, name = split_part(key)
        here = {block.size: i for i, block in enumerate(self._blocks) if block.task == task}
        if not here:
            return f"{task} was not run here"
        otherwise = []
        if size not in here:
            if any(other in here for other in sizes):
                return f"{task} was not run with {_rows(size)}"
            shown = max(here, key=lambda other: (other == "full", len(other), other))
            otherwise.append(f"trained on {_rows(shown)} here, on {_rows(size)} in the paper")
            size = shown
        index = here[size]
        if arm not in self._data[index].cells:
            return f"{arm} was not run here"
        arm = self._started_from(encoder, index, arm)
        mine = self._encoder(index, arm)
        if mine is not None and not mine.same(encoder):
            start = Encoder(mine.name, by=mine.by)
            if not start.same(Encoder(encoder.name)) and any(start.same(Encoder(other.name)) for other in encoders):
                return f"{mine.title} was run here, not {encoder.title}"
            otherwise.append(f"another encoder: {mine.title} here, {encoder.title} in the paper")
        row = self._blocks[index].row(arm)
        assert row is not None
        if name not in row.scores and row.n_ok:
            return f"{task} was not judged on {name} here"
        score = row.scores.get(name, {}).get(metric)
        if score is None and name in row.scores:
            return f"another metric: {name} of {task} was not judged by {metric} here"
        if score is None or not score.estimate.n:
            return f"no run of {arm} on {task} finished"
        return Place(index, arm, name, metric, tuple(otherwise))

    def _started_from(self, encoder: Encoder, block: int, arm: str) -> str:
        """``arm``, or the method that is the same after a phase on the tasks that ``encoder`` was trained on."""
        cells = self._data[block].cells

        def fits(name: str) -> bool:
            mine, last = self._encoder(block, name), [cells[method].finetune for method in (name, arm)]
            one, other = (manifest.regularisers.get(manifest.phases[-1]) for manifest in last)
            return mine is not None and mine.same(encoder) and one == other

        return arm if fits(arm) else next(filter(fits, cells), arm)

    def by_shape(self, places: Places) -> bool:
        """Whether the encoder of a run is known by its shape alone."""
        encoders = (self._encoder(place.block, place.arm) for place, _ in places)
        return any(encoder is not None and encoder.by == "shape" for encoder in encoders)

    def mean(self, places: Places) -> tuple[Mean, list[tuple[float, int]]]:
        """Our weighted mean in points, and (variance of the mean, seeds) of every part; no parts below two seeds."""
        value, parts = 0.0, []
        for place, weight in places:
            row = self._blocks[place.block].row(place.arm)
            assert row is not None
            one, scale = row.scores[place.set][place.metric].estimate, weight * metrics.find(place.metric).factor
            value += scale * one.mean
            parts.append((scale**2 * one.seed_deviation**2 / one.n, one.n))
        seeds = min(n for _, n in parts)
        if seeds < 2:
            return Mean(value, None, seeds), []
        return Mean(value, math.sqrt(sum(variance * n for variance, n in parts)), seeds), parts

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
            if (place, other.arm) not in self._pairs:
                self._pairs[place, other.arm] = scores.arms_of(
                    self._data[place.block], place.set, place.metric, self.config, self._seeds, names
                )
            pair, key = self._pairs[place, other.arm], (block.task, place.set)
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
        resampled = replicates_of(weights, lambda task, part: estimates[task, part])
        if resampled is None:
            return tested
        value, replicates = resampled
        if seeds < 2:
            return replace(tested, ours=Bounds(value))
        low, high = (float(end) for end in np.quantile(replicates, [(1 - confidence) / 2, (1 + confidence) / 2]))
        if confidence > self.config.confidence:
            half = NormalDist().inv_cdf((1 + confidence) / 2) * float(np.std(replicates))
            low, high = min(low, value - half), max(high, value + half)
        deviation, error = (
            math.sqrt(sum((weights[key] * getattr(one, part)) ** 2 for key, one in estimates.items()))
            for part in ("seed_deviation", "standard_error_examples")
        )
        # The quantiles of few distinct resamples may miss the mean by rounding.
        bounds = Bounds(value, min(max(low, -reach), value), max(min(high, reach), value))
        return replace(tested, ours=bounds, detectable=detectable_gain(seeds, deviation, error, confidence=confidence))


def _rows(size: str) -> str:
    return "all rows" if size == "full" else f"{size} rows"

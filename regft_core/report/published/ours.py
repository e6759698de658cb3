"""What ran here, as the cells and claims of a paper's table ask for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from regft_core import metrics
from regft_core.models.aliases import ALIASES
from regft_core.report import scores
from regft_core.report.averages import replicates_of
from regft_core.report.model import Block
from regft_core.report.published.model import Mean
from regft_core.report.read_grid import BlockData, CellData
from regft_core.schema.report import ReportConfig
from regft_core.settings.checks.report_sets import split_part
from regft_core.settings.papers.encoders import Encoder, between_phases, in_directory, named
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.power import detectable_gain
from regft_core.statistics.reproduction import Bounds


@dataclass(frozen=True)
class Place:
    """Where the same number is here, for one column of a task."""

    block: int
    #: The method as it is called here.
    arm: str
    set: str
    metric: str
    #: What makes it another experiment than the paper's.
    otherwise: tuple[str, ...]


#: Columns with their weights in a number.
Places = Sequence[tuple[Place, float]]


@dataclass(frozen=True)
class Gain:
    """A paired gain, in points, with what it is made of."""

    bounds: Bounds
    #: Seeds that both methods finished in every column; seeds that one lacks; runs that collapsed.
    seeds: int
    excluded: int
    collapsed: int
    identical: bool
    detectable: float


class Ours:
    """The blocks of the report, asked by arm, column, encoder and size."""

    def __init__(
        self, data: Sequence[BlockData], blocks: Sequence[Block], config: ReportConfig, seeds: Sequence[int]
    ) -> None:
        self.blocks = blocks
        self.config = config
        self._data = data
        self._seeds = seeds
        self._pairs: dict[tuple[Place, str], Arms] = {}

    @cached_property
    def encoders(self) -> list[Encoder]:
        """Of all runs, each once."""
        every = [self._encoder(i, arm) for i, block in enumerate(self._data) for arm in block.cells]
        return list(dict.fromkeys(one for one in every if one is not None))

    def _encoder(self, block: int, arm: str) -> Encoder | None:
        cell, task = self._data[block].cells[arm], self._data[block].task
        model = cell.finetune.model
        if model is None:
            return None
        local = model.revision is None and model.name not in ALIASES and bool(model.config)
        start = in_directory(model.name, model.config) if local else named(model.name)
        return start.after(*between_phases(cell.finetune.method, task))

    # ------------------------------------------------------------------------------ places

    def place(
        self,
        arm: str,
        key: str,
        metric: str,
        encoder: Encoder,
        size: str,
        sizes: Sequence[str],
        known: Sequence[Encoder],
    ) -> Place | str:
        """Where ``arm`` on a column is here, or why it is nowhere.

        Args:
            sizes, known: training sizes and encoders of all rows of the table. What ran here stands in the rows that it
                fits. When it fits none, it stands in all of them, marked as another experiment.
        """
        task, own = split_part(key)
        found = [i for i, block in enumerate(self.blocks) if block.task == task]
        if not found:
            return f"{task} was not run here"
        here = {self.blocks[i].size: i for i in found}
        otherwise = []
        if size in here:
            index = here[size]
        elif any(other in here for other in sizes):
            return f"{task} was not run with {_rows(size)}"
        else:
            shown, index = max(here.items(), key=lambda item: (item[0] == "full", len(item[0]), item[0]))
            otherwise.append(f"trained on {_rows(shown)} here, on {_rows(size)} in the paper")
        if arm not in self._data[index].cells:
            return f"{arm} was not run here"
        arm = self._started_from(encoder, index, arm)
        mine = self._encoder(index, arm)
        if mine is not None and not mine.same(encoder):
            start = Encoder(mine.name, by=mine.by)
            if not start.same(Encoder(encoder.name)) and any(start.same(Encoder(one.name)) for one in known):
                return f"{mine.title} was run here, not {encoder.title}"
            otherwise.append(f"another encoder: {mine.title} here, {encoder.title} in the paper")
        row = self.blocks[index].row(arm)
        assert row is not None
        if own not in row.scores:
            return f"{task} was not judged on {own} here" if row.n_ok else f"no run of {arm} on {task} finished"
        score = row.scores[own].get(metric)
        if score is None:
            return f"another metric: {own} of {task} was not judged by {metric} here"
        if not score.estimate.n:
            return f"no run of {arm} on {task} finished"
        return Place(index, arm, own, metric, tuple(otherwise))

    def _started_from(self, encoder: Encoder, block: int, arm: str) -> str:
        """``arm``, or the method that is the same after a phase on the tasks that ``encoder`` was trained on."""
        cells = self._data[block].cells

        def fits(name: str) -> bool:
            mine = self._encoder(block, name)
            return mine is not None and mine.same(encoder) and _last(cells[name]) == _last(cells[arm])

        return arm if fits(arm) else next(filter(fits, cells), arm)

    def by_shape(self, place: Place) -> bool:
        """Whether the encoder of a run is known by its shape alone."""
        encoder = self._encoder(place.block, place.arm)
        return encoder is not None and encoder.by == "shape"

    # ------------------------------------------------------------------------------ numbers

    def mean(self, places: Places) -> tuple[Mean, list[tuple[float, int]]]:
        """Our weighted mean in points, and (variance of the mean, seeds) of every part; no parts below two seeds."""
        value, parts = 0.0, []
        for place, weight in places:
            row = self.blocks[place.block].row(place.arm)
            assert row is not None
            one, scale = row.scores[place.set][place.metric].estimate, weight * metrics.find(place.metric).factor
            value += scale * one.mean
            parts.append((scale**2 * one.seed_deviation**2 / one.n, one.n))
        seeds = min(n for _, n in parts)
        if seeds < 2:
            return Mean(value, None, seeds), []
        return Mean(value, math.sqrt(sum(variance * n for variance, n in parts)), seeds), parts

    def gain(self, arm: Places, over: Places, confidence: float) -> Gain:
        """``arm`` minus ``over`` on the same columns, paired by seed, as gains count: positive is better.

        The interval is the report's two-level one. Beyond the report's confidence, where a bootstrap has few resamples,
        it is the wider of that and of a normal interval (as in ``statistics/ranks.py``).
        """
        estimates: dict[tuple[str, str], Estimate] = {}
        weights: dict[tuple[str, str], float] = {}
        widest: dict[tuple[str, str], float] = {}
        collapsed, identical = 0, True
        for (place, weight), (other, _) in zip(arm, over, strict=True):
            pair, names = self._pair(place, other), (place.arm, other.arm)
            key = (self.blocks[place.block].task, place.set)
            estimates[key] = pair.difference(*names, confidence)
            described = metrics.find(place.metric)
            widest[key] = described.largest_difference
            weights[key] = weight * described.factor * (-1 if described.lower_is_better else 1)
            identical = identical and pair.identical(*names)
            for name in names:
                row = self.blocks[place.block].row(name)
                collapsed += len(row.collapsed) if row and place.set == "dev" else 0
        seeds = min(one.n for one in estimates.values())
        excluded = max(len(one.excluded) for one in estimates.values())
        found = replicates_of(weights, lambda task, part: estimates[task, part])
        if found is None or seeds < 2:
            value = found[0] if found is not None else math.nan
            return Gain(Bounds(value), seeds, excluded, collapsed, identical, math.nan)
        value, replicates = found
        low, high = (float(one) for one in np.quantile(replicates, [(1 - confidence) / 2, (1 + confidence) / 2]))
        if confidence > self.config.confidence:
            half = NormalDist().inv_cdf((1 + confidence) / 2) * float(np.std(replicates))
            low, high = min(low, value - half), max(high, value + half)

        def combined(part: str) -> float:
            return math.sqrt(sum((weights[key] * getattr(one, part)) ** 2 for key, one in estimates.items()))

        smallest = detectable_gain(
            seeds, combined("seed_deviation"), combined("standard_error_examples"), confidence=confidence
        )
        reach = sum(abs(weights[key]) * widest[key] for key in weights)
        # The quantiles of few distinct resamples may miss the mean by rounding.
        bounds = Bounds(value, min(max(low, -reach), value), max(min(high, reach), value))
        return Gain(bounds, seeds, excluded, collapsed, identical, smallest)

    def _pair(self, place: Place, over: Place) -> Arms:
        key = (place, over.arm)
        if key not in self._pairs:
            names = (place.arm, over.arm)
            data = self._data[place.block]
            self._pairs[key] = scores.arms_of(data, place.set, place.metric, self.config, self._seeds, names)
        return self._pairs[key]


def _last(cell: CellData) -> object:
    """What the method does in its last phase."""
    return cell.finetune.regularisers.get(cell.finetune.phases[-1])


def _rows(size: str) -> str:
    return "all rows" if size == "full" else f"{size} rows"

"""Average columns as papers form them: means over named tasks and sets, with intervals and paired differences.

Replicates of the two-level bootstrap are averaged. Entries of one task share their runs, so their replicates stay
paired; tasks are resampled by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.report.model import Average, AverageLine, Block
from regft_core.rng import derive
from regft_core.schema.report import Part
from regft_core.settings.checks.report_sets import leaves
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.iqm import Interval


def average_columns(
    blocks: Sequence[Block], wanted: Mapping[str, Sequence[Part]], reference: str
) -> tuple[Average, ...]:
    """Every average of ``report.averages`` at every training size."""
    found = []
    for size in dict.fromkeys(block.size for block in blocks):
        own = {block.task: block for block in blocks if block.size == size}
        for name, parts in wanted.items():
            weights = leaves(parts)
            if {task for task, _ in weights} <= own.keys():
                found.append(_column(name, size, weights, own, reference))
    return tuple(found)


def _column(
    name: str, size: str, weights: Mapping[tuple[str, str], float], blocks: Mapping[str, Block], reference: str
) -> Average:
    used = [blocks[task].primary for task, _ in weights]
    scales = {(metrics.find(m).factor, metrics.find(m).lower_is_better) for m in used}
    methods = list(dict.fromkeys(row.method for task, _ in weights for row in blocks[task].rows))
    lines = tuple(_line(method, weights, blocks, reference) for method in methods)
    shown = tuple(task if part == "dev" else f"{task}/{part}" for task, part in weights)
    return Average(name, size, shown, used[0] if len(scales) == 1 else None, tuple(used), lines)


def _line(
    method: str, weights: Mapping[tuple[str, str], float], blocks: Mapping[str, Block], reference: str
) -> AverageLine:
    def score(task: str, part: str) -> Estimate | None:
        row = blocks[task].row(method)
        found = row.scores.get(part, {}).get(blocks[task].primary) if row is not None else None
        return found.estimate if found is not None else None

    def difference(task: str, part: str) -> Estimate | None:
        row = blocks[task].row(method)
        return next((c.estimate for c in row.against("reference", part)), None) if row is not None else None

    return AverageLine(
        method,
        _mean(weights, score),
        None if method == reference else _mean(weights, difference),
        tuple(
            task if part == "dev" else f"{task}/{part}"
            for task, part in weights
            if (estimate := score(task, part)) is not None and estimate.excluded
        ),
    )


def _mean(
    weights: Mapping[tuple[str, str], float], estimate_of: Callable[[str, str], Estimate | None]
) -> Interval | None:
    """The weighted mean of some estimates with its interval (NaN where a part has one seed); None if one is missing."""
    found = replicates_of(weights, estimate_of)
    if found is None:
        return None
    mean, replicates = found
    estimates = [one for key in weights if (one := estimate_of(*key)) is not None]
    if any(one.n < 2 for one in estimates):
        return Interval(mean, math.nan, math.nan)
    confidence = estimates[-1].confidence
    low, high = np.quantile(replicates, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean, float(low), float(high))


def replicates_of(
    weights: Mapping[tuple[str, str], float], estimate_of: Callable[[str, str], Estimate | None]
) -> tuple[float, npt.NDArray[np.float64]] | None:
    """The weighted mean of some estimates and its replicates [samples]; None if one is missing or has no seed."""
    mean = 0.0
    by_task: dict[str, Any] = {}
    for (task, part), weight in weights.items():
        estimate = estimate_of(task, part)
        if estimate is None or estimate.n == 0:
            return None
        mean += weight * estimate.mean
        by_task[task] = by_task.get(task, 0.0) + weight * estimate.replicates
    rng = np.random.default_rng(derive(0, "reporting.averages"))
    return mean, np.sum([rng.permutation(values) for values in by_task.values()], axis=0)


def as_numbers(averages: Sequence[Average]) -> dict[str, dict[str, dict[str, float | None]]]:
    """For ``results.json``: average and size -> method -> its mean and its difference with their intervals."""

    def numbers(line: AverageLine) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for what, interval in (("mean", line.value), ("difference", line.difference)):
            for key in ("value", "low", "high"):
                number = getattr(interval, key) if interval is not None else None
                shown = None if number is None or math.isnan(number) else number
                found[what if key == "value" else f"{what}_{key}"] = shown
        return found

    return {f"{one.name}-{one.size}": {line.method: numbers(line) for line in one.lines} for one in averages}

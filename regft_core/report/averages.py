"""Over several blocks: average columns as papers form them, aggregates over tasks, and what more rows would bring.

Of an average the replicates of the two-level bootstrap are averaged, paired within a task.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.names import plural
from regft_core.report.formatting import interval, number, points, sign
from regft_core.report.values import ROLES, Block, by_size
from regft_core.rng import derive
from regft_core.schema.params import Part, weights_of
from regft_core.statistics.bootstrap import Estimate, percentiles
from regft_core.statistics.forecast import expected_gains
from regft_core.statistics.reproduction import Bounds

FACTORS = (2.0, 4.0)
#: (task, set) -> its weight in a mean.
Weights = Mapping[tuple[str, str], float]


class AverageLine(NamedTuple):
    """One method in an average column; None where a part of it has no score.

    ``difference``: to the reference, paired by seed; ``incomplete``: parts of which seeds are missing.
    """

    method: str
    value: Bounds | None
    difference: Bounds | None
    incomplete: tuple[str, ...]


class Average(NamedTuple):
    """One average column at one training size.

    ``metric``: one that is shown as the ``metrics`` of all parts are; None when their scales differ.
    """

    name: str
    size: str
    parts: tuple[str, ...]
    metric: str | None
    metrics: tuple[str, ...]
    lines: tuple[AverageLine, ...]


def average_columns(blocks: Sequence[Block], wanted: Mapping[str, Sequence[Part]]) -> tuple[Average, ...]:
    averages = []
    for size in dict.fromkeys(block.size for block in blocks):
        own = {block.task: block for block in blocks if block.size == size}
        for name, parts in wanted.items():
            weights = weights_of(parts)
            if {task for task, _ in weights} <= own.keys():
                averages.append(_column(name, size, weights, own))
    return tuple(averages)


def _column(name: str, size: str, weights: Weights, blocks: Mapping[str, Block]) -> Average:
    used = [blocks[task].primary for task, _ in weights]
    scales = {(metrics.find(m).factor, metrics.find(m).lower_is_better) for m in used}
    methods = list(dict.fromkeys(row.method for task, _ in weights for row in blocks[task].rows))
    shown = {key: key[0] if key[1] == "dev" else "/".join(key) for key in weights}
    lines, ends = [], [metrics.find(m).range for m in used]
    apart = [(low - high, high - low) for low, high in ends]
    for method in methods:
        rows = {key: row for key in weights if (row := blocks[key[0]].row(method)) is not None}
        scores = {key: own for key in rows if (own := blocks[key[0]].estimate(method, key[1])) is not None}
        compared = {
            key: c.estimate for key, row in rows.items() for c in row.against("reference", key[1]) if c.estimate.n
        }
        missing = tuple(shown[key] for key, estimate in scores.items() if estimate.excluded)
        lines.append(AverageLine(method, _mean(weights, scores, ends), _mean(weights, compared, apart), missing))
    return Average(name, size, tuple(shown.values()), used[0] if len(scales) == 1 else None, tuple(used), tuple(lines))


def _mean(weights: Weights, estimates: Mapping[tuple[str, str], Estimate], ends: Sequence[Any]) -> Bounds | None:
    """The weighted mean, its interval (NaN where a part has one seed) cut as ``ends`` say; None if one is missing."""
    if len(estimates) < len(weights):
        return None
    mean, replicates = replicates_of(weights, estimates)
    if any(estimate.n < 2 for estimate in estimates.values()):
        return Bounds(mean)
    low, high = percentiles(replicates, next(iter(estimates.values())).confidence)
    lowest, highest = (sum(map(mul, weights.values(), side)) for side in zip(*ends))
    return Bounds(mean, low, high).within(lowest, highest)


def replicates_of(
    weights: Weights, estimates: Mapping[tuple[str, str], Estimate]
) -> tuple[float, npt.NDArray[np.float64]]:
    """The weighted mean of estimates with at least one seed, and its replicates [samples]."""
    by_task: dict[str, Any] = {}
    for key, weight in weights.items():
        by_task[key[0]] = by_task.get(key[0], 0.0) + weight * estimates[key].replicates
    rng = np.random.default_rng(derive(0, "reporting.averages"))
    mean = sum(weight * estimates[key].mean for key, weight in weights.items())
    return mean, np.sum([rng.permutation(values) for values in by_task.values()], axis=0)


class AcrossTasks(NamedTuple):
    """One method over all blocks, on the primary metric of the validation sets.

    Attributes:
        mean_rank: mean over blocks (1 is the best), and what its possible ranks leave of it; None without a score.
        failed: runs that failed or collapsed, of all ``runs``.
        words: role -> verdict -> number of comparisons.
    """

    method: str
    mean_rank: Bounds | None
    failed: int
    runs: int
    words: Mapping[str, Mapping[str, int]]


def across_tasks(blocks: Sequence[Block]) -> tuple[AcrossTasks, ...]:
    names = list(dict.fromkeys(row.method for block in blocks for row in block.rows))
    lines = []
    for name in names:
        rows = [row for block in blocks if (row := block.row(name)) is not None]
        rank = None
        if all(name in block.ranks for block in blocks):
            # The bounds hold in all blocks at once (``Block.ranks``), so they hold for the mean.
            every = [(_rank(b, name), b.ranks[name].best, b.ranks[name].worst) for b in blocks]
            rank = Bounds(*(float(np.mean(values)) for values in zip(*every)))
        comparisons = [c for row in rows for c in row.comparisons if c.set == "dev" and c.estimate.n]
        words: Any = {role: Counter(c.verdict.word for c in comparisons if c.plays(role)) for role in ROLES}
        failed = sum(len(row.failed) + len(row.collapsed) for row in rows)
        lines.append(AcrossTasks(name, rank, failed, sum(len(row.runs) for row in rows), words))
    return tuple(lines)


def _rank(block: Block, name: str) -> float:
    """One plus the methods that are better on the seeds that both finished, as in ``rank_sets``; a tie is half."""
    scores = {other: e.by_seed for other in block.ranks if (e := block.estimate(other)) is not None}
    gaps = (math.fsum(of[s] - scores[name][s] for s in of.keys() & scores[name].keys()) for of in scores.values())
    return float(0.5 + sum(0.5 + 0.5 * np.sign(sign(block.primary) * gap) for gap in gaps))


def more_rows(blocks: Sequence[Block]) -> tuple[str, ...]:
    """Return forecasts for more rows: the method to take, of each task that has its scores at three sizes or more."""
    forecasts = []
    for task, own in by_size(blocks).items():
        pick, metric, rows = own[-1].taken, own[-1].primary, own[-1].subsample.n
        if not pick:
            continue
        described = metrics.find(metric)
        at = {float(b.subsample.n): estimate for b in own if (estimate := b.estimate(pick)) is not None}
        upwards, best = not described.lower_is_better, described.range[not described.lower_is_better]
        room = abs(best - at[rows].mean) if math.isfinite(best) else math.inf
        gains = expected_gains(list(at), list(at.values()), FACTORS, upwards=upwards, room=room)
        known = all(estimate.interval for estimate in at.values())  # one seed does not show how runs differ
        changes = [
            points(g.mean, metric, signed=True) + f" {interval((g.low, g.high), metric, signed=True)}" * known
            for g in gains
        ]
        counts = [number(gain.factor * rows, 0) for gain in gains]
        if gains:
            further = "".join(f"; with {count} by {change}" for count, change in zip(counts[1:], changes[1:]))
            first = f"With {counts[0]} rows of {task} instead of {rows}, {pick} is expected to change by {changes[0]}"
            forecasts.append(f"{first}{further} (power law through {plural(len(at), 'size')}).")
    return tuple(forecasts)

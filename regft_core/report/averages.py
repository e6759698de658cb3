"""Over several blocks: average columns as papers form them, aggregates over tasks, and what more rows would bring.

Of an average the replicates of the two-level bootstrap are averaged. Entries of one task share their runs, so their
replicates stay paired; tasks are resampled by themselves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.metrics import higher_is_better
from regft_core.names import plural
from regft_core.report.model import AcrossTasks, Average, AverageLine, Block, MoreRows, by_size
from regft_core.report.page.formatting import factor, interval, number, score, unit
from regft_core.rng import derive
from regft_core.schema.report import Part, ReportConfig
from regft_core.settings.checks.report_sets import leaves
from regft_core.statistics.bootstrap import Estimate, average_over_tasks
from regft_core.statistics.learning_curve import expected_gains
from regft_core.statistics.over_tasks import Interval, failure_rate, interquartile_mean, probability_of_improvement

#: How many times the largest size is asked about.
FACTORS = (2.0, 4.0)
#: Estimate of a (task, set), or None.
EstimateOf = Callable[[str, str], Estimate | None]
Weights = Mapping[tuple[str, str], float]


# ----------------------------------------------------------------------------------- average columns


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


def _column(name: str, size: str, weights: Weights, blocks: Mapping[str, Block], reference: str) -> Average:
    used = [blocks[task].primary for task, _ in weights]
    scales = {(metrics.find(m).factor, metrics.find(m).lower_is_better) for m in used}
    methods = list(dict.fromkeys(row.method for task, _ in weights for row in blocks[task].rows))
    shown = {key: key[0] if key[1] == "dev" else "/".join(key) for key in weights}

    def line(method: str) -> AverageLine:
        rows = {task: blocks[task].row(method) for task, _ in weights}

        def own(task: str, part: str) -> Estimate | None:
            row = rows[task]
            found = row.scores.get(part, {}).get(blocks[task].primary) if row is not None else None
            return found.estimate if found is not None else None

        def difference(task: str, part: str) -> Estimate | None:
            row = rows[task]
            return next((c.estimate for c in row.against("reference", part)), None) if row is not None else None

        missing = tuple(text for key, text in shown.items() if (found := own(*key)) is not None and found.excluded)
        return AverageLine(
            method, _mean(weights, own), None if method == reference else _mean(weights, difference), missing
        )

    metric = used[0] if len(scales) == 1 else None
    return Average(name, size, tuple(shown.values()), metric, tuple(used), tuple(map(line, methods)))


def _mean(weights: Weights, estimate_of: EstimateOf) -> Interval | None:
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


def replicates_of(weights: Weights, estimate_of: EstimateOf) -> tuple[float, npt.NDArray[np.float64]] | None:
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


# -------------------------------------------------------------------------------------- over all tasks


def across_tasks(blocks: Sequence[Block], config: ReportConfig) -> tuple[AcrossTasks, ...]:
    """One entry per method, methods in the order of the first block that has them."""
    names = list(dict.fromkeys(row.method for block in blocks for row in block.rows))
    ranks = [_ranks(block) for block in blocks]
    return tuple(_across(name, blocks, ranks, config) for name in names)


def _dev(block: Block, method: str) -> Estimate | None:
    row = block.row(method)
    found = row.scores.get("dev", {}).get(block.primary) if row else None
    return found.estimate if found is not None and found.estimate.n else None


def _ranks(block: Block) -> dict[str, float]:
    """Rank by mean score, ties shared; methods without a finished run have none."""
    from scipy.stats import rankdata

    means = {row.method: found.mean for row in block.rows if (found := _dev(block, row.method)) is not None}
    sign = -1.0 if higher_is_better(block.primary) else 1.0
    return dict(zip(means, rankdata([sign * mean for mean in means.values()]).tolist()))


def _scores(blocks: Sequence[Block], method: str) -> dict[str, list[float]] | None:
    """block -> score per seed, larger being better; None when a block has none."""
    found = {}
    for block in blocks:
        estimate = _dev(block, method)
        if estimate is None:
            return None
        sign = 1.0 if higher_is_better(block.primary) else -1.0
        found[block.name] = [sign * value for value in estimate.values]
    return found


def _across(
    name: str, blocks: Sequence[Block], ranks: Sequence[Mapping[str, float]], config: ReportConfig
) -> AcrossTasks:
    rows = [row for block in blocks if (row := block.row(name)) is not None]
    scores, base = _scores(blocks, name), _scores(blocks, config.reference)
    # Larger or smaller is better in all blocks, and all values are shown on one scale.
    alike = len({(higher_is_better(block.primary), factor(block.primary)) for block in blocks}) == 1
    iqm = None
    if scores is not None and alike:
        iqm = interquartile_mean(scores, samples=2_000, confidence=config.confidence)
        if not higher_is_better(blocks[0].primary):
            iqm = Interval(-iqm.value, -iqm.high, -iqm.low)
    rank = None
    if all(name in own and name in block.ranks for block, own in zip(blocks, ranks, strict=True)):
        # The bounds hold in all blocks at once (``Block.ranks``), so they hold for the mean.
        best, worst = ([getattr(block.ranks[name], end) for block in blocks] for end in ("best", "worst"))
        rank = Interval(*(float(np.mean(values)) for values in ([own[name] for own in ranks], best, worst)))
    differences = [c.estimate for row in rows for c in row.against("reference")]
    comparisons = [c for row in rows for c in row.comparisons if c.set == "dev" and c.estimate.n]
    compared = scores is not None and base is not None and name != config.reference
    bad = sum(len(row.failed) + len(row.collapsed) for row in rows)
    return AcrossTasks(
        method=name,
        mean_rank=rank,
        iqm=iqm,
        difference=_average_difference(differences, blocks),
        improvement=probability_of_improvement(scores, base, confidence=config.confidence) if compared else None,  # type: ignore[arg-type]
        failures=failure_rate(bad, sum(row.n_expected for row in rows), config.confidence),
        words={r: Counter(c.verdict.word for c in comparisons if c.role == r) for r in ("reference", "control")},
    )


def _average_difference(found: Sequence[Estimate], blocks: Sequence[Block]) -> Interval | None:
    """Mean of the differences to the reference; None unless all blocks have one primary metric."""
    if len({block.primary for block in blocks}) > 1 or len(found) < len(blocks) or any(e.n == 0 for e in found):
        return None
    mean, low, high = average_over_tasks(found)
    if any(e.n < 2 for e in found):
        return Interval(mean, math.nan, math.nan)
    reach = metrics.find(blocks[0].primary).largest_difference
    return Interval(mean, max(low, -reach), min(high, reach))


# ------------------------------------------------------------------------------------------- more rows


def more_rows(blocks: Sequence[Block], rows: Mapping[str, int]) -> tuple[MoreRows, ...]:
    """One entry per task and method that has a score at three sizes or more; ``rows`` are the blocks' training rows."""
    found = []
    for task, own in by_size(blocks, rows).items():
        last = own[-1]
        described = metrics.find(last.primary)
        pick = last.decision.pick.method if last.decision is not None and last.decision.pick is not None else None
        for row in last.rows:
            at = [(block, other) for block in own if (other := block.row(row.method)) is not None and other.n_ok]
            if not at or at[-1][0] is not last:
                continue
            estimates = [other.scores["dev"][block.primary].estimate for block, other in at]
            best = described.range[0] if described.lower_is_better else described.range[1]
            room = abs(best - estimates[-1].mean) if math.isfinite(best) else math.inf
            sizes, upwards = [float(rows[block.name]) for block, _ in at], not described.lower_is_better
            if gains := expected_gains(sizes, estimates, FACTORS, upwards=upwards, room=room):
                taken = pick == row.method
                found.append(MoreRows(task, row.method, last.primary, rows[last.name], len(at), gains, taken))
    return tuple(found)


def more_rows_sentence(found: MoreRows) -> str:
    """``With 400 rows of sst2 instead of 200, hype_n is expected to change by +2.1 points [+0.4, +5.0] (...).``"""
    first = found.gains[0]
    bounds = interval((first.low, first.high), found.metric, signed=True)
    return (
        f"With {number(first.factor * found.rows, 0)} rows of {found.task} instead of {found.rows}, {found.method} is "
        f"expected to change by {score(first.mean, found.metric, signed=True)} {unit(found.metric)} {bounds} "
        f"(power law through {plural(found.sizes, 'size')})."
    )

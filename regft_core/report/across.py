"""Over several tasks: robust aggregates, counts of verdicts, failure rates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from regft_core import metrics
from regft_core.metrics import higher_is_better
from regft_core.report.model import AcrossTasks, Block, Row
from regft_core.report.page.formatting import factor
from regft_core.schema.report import ReportConfig
from regft_core.statistics.bootstrap import Estimate, average_over_tasks
from regft_core.statistics.failed import failure_rate
from regft_core.statistics.improvement import probability_of_improvement
from regft_core.statistics.iqm import Interval, interquartile_mean


def across_tasks(blocks: Sequence[Block], config: ReportConfig) -> tuple[AcrossTasks, ...]:
    """One entry per method, methods in the order of the first block that has them.

    A method enters with the blocks that the grid gives it, which are all of them.
    """
    names = list(dict.fromkeys(row.method for block in blocks for row in block.rows))
    ranks = [_ranks(block) for block in blocks]
    return tuple(_method(name, blocks, ranks, config) for name in names)


def _dev(block: Block, method: str) -> Estimate | None:
    row = block.row(method)
    score = row.scores.get("dev", {}).get(block.primary) if row else None
    return score.estimate if score is not None and score.estimate.n else None


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


def _method(
    name: str, blocks: Sequence[Block], ranks: Sequence[Mapping[str, float]], config: ReportConfig
) -> AcrossTasks:
    rows = [row for block in blocks if (row := block.row(name)) is not None]
    scores, base = _scores(blocks, name), _scores(blocks, config.reference)
    # Larger or smaller is better in all blocks, and all values are shown on one scale.
    alike = len({(higher_is_better(block.primary), factor(block.primary)) for block in blocks}) == 1
    bad = sum(len(row.failed) + len(row.collapsed) for row in rows)
    words: dict[str, Counter[str]] = {"reference": Counter(), "control": Counter()}
    for row in rows:
        for comparison in row.comparisons:
            if comparison.set == "dev" and comparison.estimate.n:
                words[comparison.role][comparison.verdict.word] += 1
    return AcrossTasks(
        method=name,
        mean_rank=_mean_rank(name, blocks, ranks),
        iqm=_interquartile(scores, higher_is_better(blocks[0].primary), config)
        if scores is not None and alike
        else None,
        difference=_average_difference(rows, blocks),
        improvement=probability_of_improvement(scores, base, confidence=config.confidence)
        if scores is not None and base is not None and name != config.reference
        else None,
        failures=failure_rate(bad, sum(row.n_expected for row in rows), config.confidence),
        words=words,
    )


def _mean_rank(name: str, blocks: Sequence[Block], ranks: Sequence[Mapping[str, float]]) -> Interval | None:
    """The bounds hold in all blocks at once (``Block.ranks``), so they hold for the mean."""
    if not all(name in rank and name in block.ranks for block, rank in zip(blocks, ranks, strict=True)):
        return None
    return Interval(
        float(np.mean([rank[name] for rank in ranks])),
        float(np.mean([block.ranks[name].best for block in blocks])),
        float(np.mean([block.ranks[name].worst for block in blocks])),
    )


def _interquartile(scores: Mapping[str, Sequence[float]], upwards: bool, config: ReportConfig) -> Interval:
    """In the metric's own direction; ``scores`` are larger when better."""
    found = interquartile_mean(scores, samples=2_000, confidence=config.confidence)
    return found if upwards else Interval(-found.value, -found.high, -found.low)


def _average_difference(rows: Sequence[Row], blocks: Sequence[Block]) -> Interval | None:
    """Mean of the differences to the reference; None unless all blocks have one primary metric."""
    found = [c.estimate for row in rows for c in row.against("reference")]
    if len({block.primary for block in blocks}) > 1 or len(found) < len(blocks) or any(e.n == 0 for e in found):
        return None
    mean, low, high = average_over_tasks(found)
    if any(e.n < 2 for e in found):
        return Interval(mean, math.nan, math.nan)
    reach = metrics.find(blocks[0].primary).largest_difference
    return Interval(mean, max(low, -reach), min(high, reach))

"""Aggregates over tasks: possible ranks.

A bootstrap of ranks fails exactly where it matters, among arms that are alike (Hall and Miller, Annals of Statistics
2009). Possible ranks come from simultaneous intervals of all paired differences instead (Mogstad, Romano, Shaikh and
Wilhelm, Review of Economic Studies 2024): an arm that is worse than w others beyond their intervals ranks no better
than 1 + w, and one that is better than v of k arms no worse than k - v. If the intervals all hold, so do these ranks,
whatever order arms with equal true means are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from regft_core.statistics.arms import Arms


@dataclass(frozen=True)
class RankSet:
    """The best and the worst rank that the data leave possible; 1 is best, ranks of equal means included."""

    best: int
    worst: int


def rank_sets(
    arms: Arms, names: Sequence[str], *, confidence: float, higher_is_better: bool = True, sets: int = 1
) -> dict[str, RankSet]:
    """Return the possible ranks of every arm of ``names`` among them.

    Each arm's set holds with ``confidence``, together with its sets of ``sets`` - 1 other tasks (Bonferroni over its
    comparisons in all of them); the sets of all arms together do not. A bootstrap of a few thousand samples has no
    quantiles that far out, so an interval is the wider of its percentiles and of a normal one with its deviation, both
    stretched by Student's t. Arms that share fewer than two seeds cannot be told apart.
    """
    level = 1 - (1 - confidence) / max(1, sets * (len(names) - 1))
    normal = NormalDist().inv_cdf((1 + level) / 2)
    behind, ahead = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for pair in combinations(names, 2):
        estimate = arms.difference(*pair, confidence=level)
        half = normal * float(np.std(estimate.replicates))
        low, high = min(estimate.low, estimate.mean - half), max(estimate.high, estimate.mean + half)
        if estimate.n > 1 and (low > 0 or high < 0):
            better, worse = pair if (low > 0) == higher_is_better else reversed(pair)
            ahead[better] += 1
            behind[worse] += 1
    return {name: RankSet(1 + behind[name], len(names) - ahead[name]) for name in names}

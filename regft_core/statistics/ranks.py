"""The ranks that arms may truly have on one task, from all paired differences at once.

A bootstrap of ranks fails exactly where it matters, among arms that are alike (Hall and Miller, Annals of
Statistics 2009). The sets here come from simultaneous intervals instead (Mogstad, Romano, Shaikh and Wilhelm,
Review of Economic Studies 2024): an arm that is worse than w others beyond their intervals ranks no better than
1 + w, and one that is better than v of k arms no worse than k - v. If the intervals all hold, so do these ranks,
whatever order arms with equal true means are given.

Each comparison gets the confidence 1 - (1 - confidence) / comparisons (Bonferroni). A bootstrap of a few thousand
samples has no quantiles that far out, so the interval is the wider of its percentiles and of a normal one with its
deviation, both stretched by Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from regft_core.statistics.arms import Arms


@dataclass(frozen=True)
class Simultaneous:
    """One arm minus another, with an interval that holds together with those of all other comparisons."""

    a: str
    b: str
    mean: float
    low: float
    high: float
    #: Seeds of both arms.
    n: int

    def leads(self, higher_is_better: bool) -> bool:
        """Whether ``a`` is better than ``b`` beyond the interval; never with fewer than two seeds."""
        return self.n > 1 and (self.low > 0 if higher_is_better else self.high < 0)


def against_all(arms: Arms, a: str, others: Sequence[str], comparisons: int, confidence: float) -> list[Simultaneous]:
    """Compare ``a`` with each of ``others``.

    Args:
        comparisons: how many comparisons the intervals hold for at once, at least ``len(others)``.
        confidence: of all of them together.

    Raises:
        ValueError: ``comparisons`` is smaller than the number of ``others``.
    """
    if comparisons < len(others):
        raise ValueError(f"{len(others)} comparisons cannot share the level of {comparisons}")
    adjusted = 1 - (1 - confidence) / max(1, comparisons)
    normal = NormalDist().inv_cdf((1 + adjusted) / 2)
    found = []
    for b in others:
        estimate = arms.difference(a, b, confidence=adjusted)
        half = normal * float(np.std(estimate.replicates)) if estimate.n else float("nan")
        low, high = min(estimate.low, estimate.mean - half), max(estimate.high, estimate.mean + half)
        found.append(Simultaneous(a, b, estimate.mean, low, high, estimate.n))
    return found


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
    comparisons in all of them); the sets of all arms together do not. Arms that share fewer than two
    seeds cannot be told apart. The work grows with the square of the number of arms.
    """
    comparisons = sets * (len(names) - 1)
    behind, ahead = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for i, first in enumerate(names):
        others = names[i + 1 :]
        if not others:
            continue
        for found in against_all(arms, first, others, comparisons, confidence):
            if found.leads(higher_is_better):
                ahead[first] += 1
                behind[found.b] += 1
            elif found.leads(not higher_is_better):
                behind[first] += 1
                ahead[found.b] += 1
    return {name: RankSet(1 + behind[name], len(names) - ahead[name]) for name in names}

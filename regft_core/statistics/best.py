"""Which arms may be the best: paired comparisons of one arm with all others that hold at once.

An arm that is picked because its mean is the largest is compared with k - 1 others after looking.
Each comparison therefore gets the confidence 1 - (1 - confidence) / (k - 1) (Bonferroni). All of
them then hold together, and the arm that is truly the best is among those that are indistinguishable from
the picked one with at least the confidence asked for (the argument of Gupta's subset selection,
Technometrics 1965: it can only be lost by losing one of its own k - 1 comparisons).

A bootstrap of a few thousand samples has no quantiles that far out, so the interval is the wider of
its percentiles and of a normal interval with its deviation. Both are stretched by Student's t at
the adjusted confidence, so that few seeds do not claim much.
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

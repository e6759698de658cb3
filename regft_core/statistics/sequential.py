"""Intervals that survive looking at the results and then adding seeds.

Whoever adds seeds until an interval excludes zero will be right about every interval and wrong about the claim: with
five looks about one null in seven is declared a difference at 95%. Each look therefore spends a share of
the error: the k-th has the confidence 1 - (1 - confidence) / (k (k + 1)). The shares add up to 1 - confidence over
any number of looks, so all intervals of one comparison hold together, whenever and for whatever reason
the seeds were added (Darling and Robbins, PNAS 1967; the spending view is that of Lan and DeMets, Biometrika
1983). It needs nothing of the interval but that it holds at a fixed number of seeds, which the two-level interval
does at few; a mixture sequence for Gaussian means (Robbins, Annals of Mathematical Statistics 1970) knows nothing of
examples and is wider still at three to ten seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from regft_core.statistics.arms import Arms
from regft_core.statistics.best import against_all


@dataclass(frozen=True)
class Look:
    """Which look at one comparison this is, and its interval, which holds together with those of all other looks."""

    #: 1 for the first; looks at the same seeds count once.
    number: int
    #: Number of paired seeds at every look so far, in order; more than ``number`` of them when seeds were taken away.
    seeds: tuple[int, ...]
    confidence: float
    low: float
    high: float


def shares(number: int) -> int:
    """Return into how many parts look ``number`` divides the error: k (k + 1).

    Raises:
        ValueError: looks are counted from 1.
    """
    if number < 1:
        raise ValueError(f"look {number}: looks are counted from 1")
    return number * (number + 1)


def look(arms: Arms, a: str, b: str, number: int, seeds: tuple[int, ...], confidence: float) -> Look:
    """Return look ``number`` at the difference between ``a`` and ``b``; ``seeds`` as in ``Look``."""
    parts = shares(number)
    (found,) = against_all(arms, a, [b], parts, confidence)
    return Look(number, seeds, 1 - (1 - confidence) / parts, found.low, found.high)

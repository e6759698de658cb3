"""Exact Wilcoxon signed-rank test of paired differences, a second opinion beside the interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Below this many non-zero differences no data reach two-sided p < 0.05.
SMALLEST_USEFUL_N = 6


@dataclass(frozen=True)
class SignedRank:
    """Result of ``signed_rank``."""

    #: Sum of the ranks of positive differences.
    statistic: float
    #: Two-sided and exact, also with ties.
    p_value: float
    #: Number of differences that are not zero; zeros are left out (Wilcoxon's treatment).
    n: int


def signed_rank(differences: Sequence[float]) -> SignedRank:
    """Test whether paired ``differences`` (one per seed) are symmetric about zero.

    The distribution over all 2^n signs is computed with the ranks at hand, mid-ranks of ties
    included. Differences closer than 1e-12 count as tied, so that rounding does not decide.

    Raises:
        ValueError: a difference is NaN or infinite.
    """
    values = np.round(np.asarray(differences, dtype=np.float64), 12)
    if not np.isfinite(values).all():
        raise ValueError("a difference is NaN or infinite")
    values = values[values != 0]
    n = values.size
    _, group, counts = np.unique(np.abs(values), return_inverse=True, return_counts=True)
    doubled = (2 * np.cumsum(counts) - counts + 1)[group]  # twice the mid-ranks: integers
    total = int(doubled.sum())
    distribution = np.zeros(total + 1)
    distribution[0] = 1.0
    for rank in doubled.tolist():
        shifted = np.zeros_like(distribution)
        shifted[rank:] = distribution[: total + 1 - rank]
        distribution = (distribution + shifted) / 2
    observed = int(doubled[values > 0].sum())
    tail = min(observed, total - observed)
    p_value = min(1.0, 2 * float(distribution[: tail + 1].sum()))
    return SignedRank(observed / 2, p_value, n)

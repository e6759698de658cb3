"""The interval of a sum or difference of independent means that are known by their deviations alone."""

from __future__ import annotations

import math
from collections.abc import Sequence


def welch_interval(value: float, parts: Sequence[tuple[float, int]], confidence: float = 0.95) -> tuple[float, float]:
    """Return the t-interval around ``value`` with Satterthwaite's degrees of freedom (Welch, Biometrika 1947).

    ``parts`` are (variance of the mean, number of runs) of everything that ``value`` is made of. NaN without
    parts, with a part of fewer than two runs, and without any spread: nobody knows how much ``value`` varies then.

    Raises:
        ValueError: a negative variance.
    """
    if any(variance < 0 for variance, _ in parts):
        raise ValueError("a variance is negative")
    total = sum(variance for variance, _ in parts)
    if not parts or total == 0 or min(n for _, n in parts) < 2:
        return math.nan, math.nan
    from scipy.stats import t

    freedom = total**2 / sum(variance**2 / (n - 1) for variance, n in parts)
    half = float(t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(total)
    return value - half, value + half

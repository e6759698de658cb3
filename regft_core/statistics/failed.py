"""How often runs fail, with Wilson's interval, which stays inside [0, 1] at small n."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class FailureRate:
    """``failed`` of ``n`` runs, as a rate with its interval."""

    failed: int
    n: int
    rate: float
    low: float
    high: float


def failure_rate(failed: int, n: int, confidence: float = 0.95) -> FailureRate:
    """Return the rate of failed (or collapsed) runs; rate and interval are NaN and [0, 1] for n = 0.

    Raises:
        ValueError: ``failed`` is not between 0 and ``n``.
    """
    if not 0 <= failed <= n:
        raise ValueError(f"{failed} failed runs of {n}")
    if n == 0:
        return FailureRate(0, 0, math.nan, 0.0, 1.0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = failed / n
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    # At the ends the formula is exactly 0 and 1; rounding must not say otherwise.
    return FailureRate(failed, n, rate, 0.0 if failed == 0 else centre - half, 1.0 if failed == n else centre + half)

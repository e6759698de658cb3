"""What a number of seeds can show: power of the two-sided paired t-test over seeds.

The development set counts as given here; its own sampling error comes on top.
"""

from __future__ import annotations

import math


def detectable_difference(n: int, deviation: float, *, power: float = 0.8, confidence: float = 0.95) -> float:
    """Return the smallest true difference that ``n`` paired seeds find with probability ``power``.

    ``deviation`` is the standard deviation over seeds of the paired difference; the result has its
    unit, and is infinite below two seeds.

    Raises:
        ValueError: a negative deviation, or a power outside (1 - confidence, 1).
    """
    if deviation < 0:
        raise ValueError(f"deviation {deviation} is negative")
    if not 1 - confidence < power < 1:
        raise ValueError(f"power {power} is not between {1 - confidence:g} and 1")
    if n < 2:
        return math.inf
    from scipy.optimize import brentq

    def missing(effect: float) -> float:
        return _power(effect, n, confidence) - power

    upper = 4 / math.sqrt(n)
    while missing(upper) < 0:
        upper *= 2
    return float(brentq(missing, 0.0, upper, xtol=1e-9)) * deviation


def seeds_needed(
    difference: float, deviation: float, *, power: float = 0.8, confidence: float = 0.95, limit: int = 100_000
) -> int:
    """Return the fewest paired seeds whose ``detectable_difference`` is at most ``difference``.

    Raises:
        ValueError: ``difference`` is not positive, or even ``limit`` seeds do not suffice.
    """
    if difference <= 0:
        raise ValueError(f"difference {difference} is not positive")

    def enough(n: int) -> bool:
        return detectable_difference(n, deviation, power=power, confidence=confidence) <= difference

    high = 2
    while not enough(high):
        high *= 2
        if high > limit:
            raise ValueError(f"more than {limit} seeds for a difference of {difference} at deviation {deviation}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _power(effect: float, n: int, confidence: float) -> float:
    """Power at a standardised ``effect`` (difference / deviation)."""
    from scipy.stats import nct, t

    critical = float(t.ppf((1 + confidence) / 2, n - 1))
    shift = effect * math.sqrt(n)
    if shift == 0:
        return 1 - confidence
    wrong_side = float(nct.cdf(-critical, n - 1, shift))  # underflows to NaN far out
    return float(nct.sf(critical, n - 1, shift)) + (0.0 if math.isnan(wrong_side) else wrong_side)

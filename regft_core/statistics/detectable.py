"""What a number of seeds can show: power of the two-sided paired t-test over seeds.

The development set counts as given in ``detectable_difference`` and ``seeds_needed``; ``plan_seeds`` adds its sampling
error, which no number of seeds removes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

#: Of the interval of a deviation whose upper end a plan takes (Browne, Statistics in Medicine 1995).
SAFE = 0.8


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

    if deviation < 0:
        raise ValueError(f"deviation {deviation} is negative")

    def enough(n: int) -> bool:
        return deviation == 0 or _power(difference / deviation, n, confidence) >= power

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


@dataclass(frozen=True)
class SeedPlan:
    """How many paired seeds find a difference; None where no number does, or more than ``LIMIT``."""

    #: When the deviation over seeds is what was seen.
    seeds: int | None
    #: When it is at the upper end of its one-sided 80% interval: few seeds tell little about it.
    safe: int | None
    #: The smallest difference that endless seeds would find on this development set.
    floor: float


LIMIT = 10_000


def plan_seeds(
    difference: float,
    deviation: float,
    n: int,
    examples_error: float,
    *,
    power: float = 0.8,
    confidence: float = 0.95,
) -> SeedPlan:
    """Plan for a true ``difference`` from a pilot of ``n`` paired seeds with ``deviation`` between them.

    The sampling error ``examples_error`` of the development set (standard error of the difference) takes its part
    of the difference first; the seeds must find what is left, in quadrature.

    Raises:
        ValueError: fewer than two seeds, a negative deviation or error, a difference that is not positive.
    """
    if n < 2:
        raise ValueError(f"{n} seeds show no spread")
    if examples_error < 0:
        raise ValueError(f"standard error {examples_error} is negative")
    if difference <= 0:
        raise ValueError(f"difference {difference} is not positive")
    from scipy.stats import chi2

    floor = _floor(examples_error, power, confidence)
    upper = deviation * math.sqrt((n - 1) / float(chi2.ppf(1 - SAFE, n - 1)))
    left = math.sqrt(max(difference**2 - floor**2, 0.0))

    def needed(spread: float) -> int | None:
        if left == 0 or (spread > 0 and _power(left / spread, LIMIT, confidence) < power):
            return None
        return seeds_needed(left, spread, power=power, confidence=confidence)

    return SeedPlan(needed(deviation), needed(upper), floor)


def detectable_gain(
    n: int, deviation: float, examples_error: float, *, power: float = 0.8, confidence: float = 0.95
) -> float:
    """Return the smallest true difference that ``n`` paired seeds find on this development set.

    As ``detectable_difference``, with the sampling error ``examples_error`` of the development set (standard error of
    the difference) in quadrature: the difference that ``plan_seeds`` plans ``n`` seeds for.

    Raises:
        ValueError: as ``detectable_difference``, and for a negative error.
    """
    if examples_error < 0:
        raise ValueError(f"standard error {examples_error} is negative")
    seeds = detectable_difference(n, deviation, power=power, confidence=confidence)
    return math.hypot(seeds, _floor(examples_error, power, confidence))


def _floor(examples_error: float, power: float, confidence: float) -> float:
    """The smallest difference that endless seeds find."""
    return (NormalDist().inv_cdf((1 + confidence) / 2) + NormalDist().inv_cdf(power)) * examples_error


def _power(effect: float, n: int, confidence: float) -> float:
    """Power at a standardised ``effect`` (difference / deviation)."""
    from scipy.stats import nct, t

    critical = float(t.ppf((1 + confidence) / 2, n - 1))
    shift = effect * math.sqrt(n)
    if shift == 0:
        return 1 - confidence
    wrong_side = float(nct.cdf(-critical, n - 1, shift))  # underflows to NaN far out
    return float(nct.sf(critical, n - 1, shift)) + (0.0 if math.isnan(wrong_side) else wrong_side)

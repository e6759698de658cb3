"""What a number of seeds can show: power of the two-sided paired t-test over seeds.

The development set counts as given in ``detectable_difference``; ``detectable_gain`` adds its sampling error, which no
number of seeds removes.
"""

from __future__ import annotations

import math
from statistics import NormalDist


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


def detectable_gain(
    n: int, deviation: float, examples_error: float, *, power: float = 0.8, confidence: float = 0.95
) -> float:
    """Return the smallest true difference that ``n`` paired seeds find on this development set.

    As ``detectable_difference``, with the sampling error ``examples_error`` of the development set (standard error of
    the difference) in quadrature.

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

"""How many times smaller one standard deviation is than another: the F interval of independent normal samples."""

from __future__ import annotations

import math


def log_ratio(
    first: float, second: float, n_first: int, n_second: int, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return ln(first / second) of two standard deviations over seeds with its interval (Fisher's F).

    NaN bounds below two seeds. The seeds' scores count as normal and independent; heavy tails, such as those of
    runs that collapse, make the interval too short.

    Raises:
        ValueError: a deviation is not positive.
    """
    if first <= 0 or second <= 0:
        raise ValueError(f"deviations {first} and {second} have no ratio; both must be positive")
    value = math.log(first / second)
    if min(n_first, n_second) < 2:
        return value, math.nan, math.nan
    from scipy.stats import f

    upper = (1 + confidence) / 2
    low = value - 0.5 * math.log(float(f.ppf(upper, n_first - 1, n_second - 1)))
    high = value + 0.5 * math.log(float(f.ppf(upper, n_second - 1, n_first - 1)))
    return value, low, high


def detectable_log_ratio(n_first: int, n_second: int, *, power: float = 0.8, confidence: float = 0.95) -> float:
    """Return the smallest true ln(first / second) that the interval finds with probability ``power``.

    Infinite below two seeds.
    """
    if min(n_first, n_second) < 2:
        return math.inf
    from scipy.stats import f

    critical = float(f.ppf((1 + confidence) / 2, n_first - 1, n_second - 1))
    return 0.5 * math.log(critical / float(f.ppf(1 - power, n_first - 1, n_second - 1)))

"""Differences that a number of seeds can detect, and how looks at earlier seeds share the error.

``detectable_gain`` is the power of the two-sided paired t-test over seeds, with the sampling error of the validation
set, which no number of seeds removes. ``plan_seeds`` plans with the rule of ``verdict``.

Whoever adds seeds until an interval excludes zero finds a difference where there is none: with five looks in about one
of seven cases at 95%. So the k-th look has the confidence 1 - (1 - confidence) / (k (k + 1)). The shares add up to
1 - confidence over any number of looks, so all intervals of one comparison hold together, whenever and for whatever
reason seeds were added (Darling and Robbins, PNAS 1967; Lan and DeMets, Biometrika 1983).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from regft_core.lazy import optimize, stats
from regft_core.statistics.verdict import POWER, Error, Sample, scale_of

#: Most seeds that a plan asks for.
LIMIT = 200
#: Of the interval of a deviation whose upper end is the safe one (Browne, Statistics in Medicine 1995).
SAFE = 0.8


def shares(number: int) -> int:
    """Return into how many parts look ``number``, counted from 1, divides the error: k (k + 1)."""
    return number * (number + 1)


def detectable_gain(n: int, deviation: float, examples_error: float, *, confidence: float = 0.95) -> float:
    """Return the smallest true difference that ``n`` paired seeds find with ``POWER`` on this validation set.

    ``deviation`` is the standard deviation over seeds of the paired difference. The sampling error of the validation
    set (standard error of the difference) is added in quadrature. Infinite below two seeds.
    """
    if n < 2:
        return math.inf

    def missing(effect: float) -> float:
        return _power(effect, n, confidence) - POWER

    upper = 4 / math.sqrt(n)
    while missing(upper) < 0:
        upper *= 2
    floor = (NormalDist().inv_cdf((1 + confidence) / 2) + NormalDist().inv_cdf(POWER)) * examples_error
    return math.hypot(float(optimize.brentq(missing, 0.0, upper, xtol=1e-9)) * deviation, floor)


def _power(effect: float, n: int, confidence: float) -> float:
    """Power at a standardised ``effect`` (difference / deviation)."""
    critical = float(stats.t.ppf((1 + confidence) / 2, n - 1))
    shift = effect * math.sqrt(n)
    if shift == 0:
        return 1 - confidence
    wrong_side = float(stats.nct.cdf(-critical, n - 1, shift))  # underflows to NaN far out
    return float(stats.nct.sf(critical, n - 1, shift)) + (0.0 if math.isnan(wrong_side) else wrong_side)


# ------------------------------------------------------------------------------------ planning


@dataclass(frozen=True)
class SeedPlan:
    """How many paired seeds detect a difference; None where ``LIMIT`` do not."""

    #: When the deviation over seeds is what was seen.
    seeds: int | None
    #: When it is at the upper end of its one-sided 80% interval: few seeds tell little about it.
    safe: int | None
    #: The smallest difference that ``LIMIT`` seeds detect on this validation set, and that the grid's seeds do.
    floor: float
    shown: float


def plan_seeds(
    difference: float, sample: Sample, comparisons: int, error: float, point: float, *, grid_seeds: int
) -> SeedPlan:
    """Plan for a true ``difference`` from a pilot; arguments as ``detectable_with``."""
    n = len(sample.values)
    upper = math.sqrt((n - 1) / float(stats.chi2.ppf(1 - SAFE, n - 1)))
    common = (sample, comparisons, error, point)
    return SeedPlan(
        seeds_for(difference, *common),
        seeds_for(difference, *common, upper),
        detectable_with(LIMIT, *common),
        detectable_with(grid_seeds, *common),
    )


def detectable_with(
    seeds: int, sample: Sample, comparisons: int, error: float, point: float, factor: float = 1
) -> float:
    """Return the true difference that ``seeds`` seeds show four times in five in a family of ``comparisons``.

    ``sample`` is the pilot (two seeds or more); its spread over seeds is taken ``factor`` times as large. Bonferroni's
    level, so the report promises no less. Infinite below two seeds.
    """
    if seeds < 2:
        return math.inf
    pilot = len(sample.values)
    skill = factor**2 * max(0.0, float(np.var(sample.values, ddof=1)) - sample.inner)
    shared = max(0.0, float(np.var(sample.rows)) - sample.inner / pilot)
    scale = scale_of(skill, point)
    spread = Error.known(skill + sample.inner, shared + sample.inner / seeds, seeds, sample, point, scale)
    truth = math.sqrt(spread.rows**2 + sample.repeats * skill / seeds)
    return spread.half_width(math.log(error / max(1, comparisons))) + truth * NormalDist().inv_cdf(POWER)


def seeds_for(
    difference: float, sample: Sample, comparisons: int, error: float, point: float, factor: float = 1
) -> int | None:
    """Return the fewest seeds with which ``difference`` is detectable; None when ``LIMIT`` do not suffice."""
    if detectable_with(LIMIT, sample, comparisons, error, point, factor) > difference:
        return None

    def shows(seeds: int) -> bool:
        return detectable_with(seeds, sample, comparisons, error, point, factor) <= difference

    return 2 + bisect_left(range(2, LIMIT), True, key=shows)

"""Forecast what more training rows, trials or seeds would show, and share the error among looks at earlier seeds.

Rows: a power law through the scores at several sizes, score(n) = c - b n^-a with b >= 0, the form that learning curves
of classifiers follow over a wide range (Hestness et al., arXiv:1712.00409). ``a`` comes from a grid, c and b from
weighted least squares. Every bootstrap replicate of the scores is fitted by itself, so the interval holds the doubt
about rows, seeds and the exponent. Few sizes fit a curve that still rises and one that has levelled off alike; the
width of the interval shows it.

Trials: the expected best of k of them, drawn without replacement (Tang et al., "Showing Your Work Doesn't Always Work",
ACL 2020: the plug-in estimator of Dodge et al. 2019 is biased downwards).

Seeds: ``detectable_gain`` is the power of the two-sided paired t-test over seeds, with the sampling error of the
validation set, which no number of seeds removes. ``plan_seeds`` plans with the rule of ``verdict``.

Whoever adds seeds until an interval excludes zero finds a difference where there is none: with five looks in about one
of seven cases at 95%. So the k-th look has the confidence 1 - (1 - confidence) / (k (k + 1)). The shares add up to
1 - confidence over any number of looks, so all intervals of one comparison hold together, whenever and for whatever
reason seeds were added (Darling and Robbins, PNAS 1967; Lan and DeMets, Biometrika 1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import comb
from statistics import NormalDist

from regft_core.lazy import Array, np, optimize, stats
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.verdict import POWER, Error, Sample, overlap, scale_of

#: Fewer sizes leave nothing to judge the fit by.
FEWEST_SIZES = 3
EXPONENTS = np.linspace(0.1, 1.5, 57)
#: Replicates that are fitted.
FITTED = 1_000
#: Most seeds that a plan asks for.
LIMIT = 200
#: Of the interval of a deviation whose upper end is the safe one (Browne, Statistics in Medicine 1995).
SAFE = 0.8


@dataclass(frozen=True)
class Gain:
    """Expected change of the score from the largest size measured to ``factor`` times as many rows."""

    factor: float
    mean: float
    low: float
    high: float


def expected_gains(
    sizes: Sequence[float],
    scores: Sequence[Estimate],
    factors: Sequence[float],
    *,
    upwards: bool = True,
    room: float = np.inf,
) -> tuple[Gain, ...]:
    """Return the gain that each of ``factors`` times the largest of ``sizes`` would bring; empty below three sizes.

    Args:
        sizes: numbers of training rows, all different.
        scores: the mean score at each size, with its bootstrap replicates; NaN (one group of rows) gives no gain.
        upwards: whether larger scores are better; the gain has the sign of the score.
        room: how far the best possible score is from the one at the largest size.
    """
    if len(set(sizes)) < FEWEST_SIZES or any(math.isnan(s.low) for s in scores):
        return ()
    sign = 1.0 if upwards else -1.0
    rows = np.asarray(sizes, dtype=np.float64)
    samples = min(FITTED, *(len(s.replicates) for s in scores))
    observed = sign * np.array([[s.mean for s in scores]])
    replicates = sign * np.stack([s.replicates[:samples] for s in scores], axis=1)
    deviations = replicates.std(axis=0)
    weights = 1 / np.maximum(deviations, max(1e-6, float(deviations.max()) / 10)) ** 2
    slopes, exponents = _fitted(rows, np.concatenate([observed, replicates]), weights)
    levels = [(1 - scores[0].confidence) / 2, (1 + scores[0].confidence) / 2]
    forecasts = []
    for factor in factors:
        gains = np.clip(slopes * (1 - factor**-exponents), 0.0, room)
        low, high = sorted(sign * float(end) for end in np.quantile(gains[1:], levels))
        # The mean of the replicates: the curve through the means alone takes a lucky largest size for a slope.
        forecasts.append(Gain(factor, sign * float(gains[1:].mean()), low, high))
    return tuple(forecasts)


def _fitted(rows: Array, scores: Array, weights: Array) -> tuple[Array, Array]:
    """Fit each row of ``scores`` [B, m]; return [B] what the largest size is short of c, and [B] a."""
    largest = rows.max()
    best, slopes, exponents = np.full(len(scores), np.inf), *np.zeros((2, len(scores)))
    total = weights.sum()
    centre = (scores @ weights) / total
    for exponent in EXPONENTS:
        basis = -((rows / largest) ** -exponent)
        apart = basis - (basis @ weights) / total
        slope = np.maximum(0.0, ((scores - centre[:, None]) * weights) @ apart / (weights @ apart**2))
        wrong = (((scores - centre[:, None]) - slope[:, None] * apart) ** 2) @ weights
        better = wrong < best
        best = np.where(better, wrong, best)
        slopes, exponents = np.where(better, slope, slopes), np.where(better, exponent, exponents)
    return slopes, exponents


def expected_max_curve(values: Sequence[float]) -> list[float]:
    """Return, for every budget from 1 to all trials, the mean over its subsets of ``values`` of their maximum."""
    ordered, curve = sorted(values), []
    for k in range(1, len(values) + 1):
        total = comb(len(values), k)
        # The i-th smallest (0-based) is the maximum of comb(i, k - 1) subsets.
        curve.append(float(sum(float(Fraction(comb(i, k - 1), total)) * v for i, v in enumerate(ordered))))
    return curve


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
    rows, folds = float(np.var(sample.rows)), sample.folds
    if folds is None:
        rows = max(0.0, rows - sample.inner / pilot) + sample.inner / seeds
    else:  # repeats of the folds judge the same rows again
        wider = overlap(folds, max(1.0, seeds / folds)) / overlap(folds, sample.repeats)
        rows *= wider**2 * min(pilot, folds) / min(seeds, folds)
        sample = replace(sample, repeats=max(1.0, seeds / folds))
    spread = Error.known(skill + sample.inner, rows, seeds, sample, point, scale_of(skill, point))
    truth = math.sqrt(spread.rows**2 + sample.repeats * skill / seeds)
    return spread.half_width(math.log(error / max(1, comparisons))) + truth * NormalDist().inv_cdf(POWER)


def seeds_for(
    difference: float, sample: Sample, comparisons: int, error: float, point: float, factor: float = 1
) -> int | None:
    """Return the fewest seeds with which ``difference`` is detectable; None when ``LIMIT`` do not suffice."""
    common = (sample, comparisons, error, point, factor)
    if sample.folds is None and detectable_with(LIMIT, *common) > difference:
        return None
    every = range(2, LIMIT + 1)  # a second repeat of the folds may show less than the first
    return next((seeds for seeds in every if detectable_with(seeds, *common) <= difference), None)

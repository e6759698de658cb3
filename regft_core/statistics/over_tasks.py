"""Aggregates over seeds and tasks: interquartile mean, probability of improvement, possible ranks, failed runs.

The first two are of Agarwal et al., "Deep RL at the edge of the statistical precipice", 2021. The interquartile mean is
resampled within tasks, which keep their number of seeds. The probability of improvement is the Mann-Whitney probability
per task, then the mean over tasks. Their percentile bootstrap of it is not used: at five seeds it covered the truth in
65% of simulated cases where arms hardly overlap, and it has no width where they do not. The interval here is the wider
of

- the score interval, with Hanley and McNeil's variance (Radiology 1982) taken at each candidate value, as
  Newcombe advises for small samples (Statistics in Medicine 2006, his method 5). It keeps its width at 0 and 1,
  and at 1/2 its variance is the exact one of the Mann-Whitney test;
- the interval on the logit scale with the variance of the placements and Satterthwaite's degrees of freedom
  (Brunner and Munzel, Biometrical Journal 2000), which holds when one arm is less stable than the other.

Simulations (``tests/statistics/test_coverage.py``) hold it to its confidence at 5, 10 and 20 seeds. Runs are taken
as independent; seeds that arms share make the interval wider than it need be, not narrower. Failures have Wilson's
interval, which stays inside [0, 1] at small n.

A bootstrap of ranks fails exactly where it matters, among arms that are alike (Hall and Miller, Annals of Statistics
2009). Possible ranks come from simultaneous intervals of all paired differences instead (Mogstad, Romano, Shaikh and
Wilhelm, Review of Economic Studies 2024): an arm that is worse than w others beyond their intervals ranks no better
than 1 + w, and one that is better than v of k arms no worse than k - v. If the intervals all hold, so do these ranks,
whatever order arms with equal true means are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from regft_core.rng import derive
from regft_core.statistics.arms import Arms


@dataclass(frozen=True)
class Interval:
    """A value with its interval."""

    value: float
    low: float
    high: float


def interquartile_mean(
    scores: Mapping[str, Sequence[float]], *, samples: int = 10_000, confidence: float = 0.95, rng_seed: int = 0
) -> Interval:
    """Return the mean of the middle half of all runs' scores, ``scores`` being task -> one score per seed.

    When the number of runs is not a multiple of four, the runs at the quartiles count in part (no
    rounding, unlike a trimmed mean that drops whole runs). Failed runs belong into the failure
    rate, collapsed ones into the scores.

    Raises:
        ValueError: no task, or a task without scores.
    """
    strata = _strata(scores)
    weights = _middle_half(sum(map(len, strata)))
    rng = np.random.default_rng(derive(rng_seed, "statistics.iqm"))
    drawn = np.concatenate([_draw(rng, values, samples) for values in strata], axis=1)
    drawn.sort(axis=1)
    low, high = np.quantile(drawn @ weights, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(np.sort(np.concatenate(strata)) @ weights), float(low), float(high))


def _strata(scores: Mapping[str, Sequence[float]]) -> list[npt.NDArray[np.float64]]:
    empty = [task for task, values in scores.items() if len(values) == 0]
    if empty or not scores:
        raise ValueError(f"no scores for {', '.join(empty) or 'any task'}")
    return [np.asarray(values, dtype=np.float64) for values in scores.values()]


def _draw(rng: np.random.Generator, values: npt.NDArray[np.float64], samples: int) -> npt.NDArray[np.float64]:
    return values[rng.integers(len(values), size=(samples, len(values)))]


def _middle_half(n: int) -> npt.NDArray[np.float64]:
    """Return [n] weights of sorted scores: each covers 1/n of the distribution, cut to [1/4, 3/4]."""
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    weights = np.diff(edges) * 2
    assert math.isclose(weights.sum(), 1.0)
    return weights


def probability_of_improvement(
    a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]], *, confidence: float = 0.95
) -> Interval:
    """Return the chance that a random run of ``a`` scores above one of ``b`` on a random task (a tie counts half).

    Both map the same tasks to one score per seed (larger is better); runs are not paired here: it
    answers what to expect from one new run of each. The tasks are taken as given, as are their validation sets.
    With a single seed in some task of some arm the bounds are NaN: nobody knows how much runs vary.

    Raises:
        ValueError: the tasks differ, there is none, or one has no scores.
    """
    if set(a) != set(b):
        raise ValueError(f"tasks differ between the arms: {sorted(set(a) ^ set(b))}")
    empty = sorted(task for task in a if not len(a[task]) or not len(b[task]))
    if empty or not a:
        raise ValueError(f"no scores for {', '.join(empty) or 'any task'}")
    tables = [_wins(np.asarray(a[task], dtype=np.float64), np.asarray(b[task], dtype=np.float64)) for task in sorted(a)]
    value = float(np.mean([table.mean() for table in tables]))
    if min(min(table.shape) for table in tables) < 2:
        return Interval(value, math.nan, math.nan)
    score, logit = _score_interval(value, tables, confidence), _logit_interval(value, tables, confidence)
    return Interval(value, min(score[0], logit[0]), max(score[1], logit[1]))


def _wins(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return [n, m]: 1 where the run of x [n] beats that of y [m], 1/2 for a tie."""
    difference = x[:, None] - y[None]
    return (difference > 0) + (difference == 0) / 2


def _score_interval(value: float, tables: Sequence[npt.NDArray[np.float64]], confidence: float) -> tuple[float, float]:
    """All probabilities from which ``value`` is less than the normal quantile away, with their own variance.

    One probability stands for all tasks. The variance is concave in it, so tasks that differ make it too large.
    """
    from scipy.optimize import brentq

    normal = NormalDist().inv_cdf((1 + confidence) / 2)

    def beyond(candidate: float) -> float:
        variance = sum(_variance(candidate, *table.shape) for table in tables) / len(tables) ** 2
        return abs(candidate - value) - normal * math.sqrt(max(variance, 0.0))

    tiny = 1e-12
    low = float(brentq(beyond, 0.0, value - tiny)) if value > tiny and beyond(0.0) > 0 else 0.0
    high = float(brentq(beyond, value + tiny, 1.0)) if value < 1 - tiny and beyond(1.0) > 0 else 1.0
    return low, high


def _variance(p: float, n: int, m: int) -> float:
    """Hanley and McNeil's variance of the Mann-Whitney estimate of ``p`` from n and m runs, sizes averaged."""
    less = (n + m) / 2 - 1
    return p * (1 - p) * (1 + less * (1 - p) / (2 - p) + less * p / (1 + p)) / (n * m)


def _logit_interval(value: float, tables: Sequence[npt.NDArray[np.float64]], confidence: float) -> tuple[float, float]:
    parts = [
        (float(np.var(placements, ddof=1)) / len(placements) / len(tables) ** 2, len(placements) - 1)
        for table in tables
        for placements in (table.mean(axis=1), table.mean(axis=0))
    ]
    total = sum(variance for variance, _ in parts)
    if total <= 0 or not 0 < value < 1:
        return value, value  # the score interval alone decides
    from scipy.stats import t

    freedom = total**2 / sum(variance**2 / own for variance, own in parts)
    centre, width = math.log(value / (1 - value)), math.sqrt(total) / (value * (1 - value))
    reach = float(t.ppf((1 + confidence) / 2, freedom)) * width
    return _logistic(centre - reach), _logistic(centre + reach)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


@dataclass(frozen=True)
class RankSet:
    """The best and the worst rank that the data leave possible; 1 is best, ranks of equal means included."""

    best: int
    worst: int


def rank_sets(
    arms: Arms, names: Sequence[str], *, confidence: float, higher_is_better: bool = True, sets: int = 1
) -> dict[str, RankSet]:
    """Return the possible ranks of every arm of ``names`` among them.

    Each arm's set holds with ``confidence``, together with its sets of ``sets`` - 1 other tasks (Bonferroni over its
    comparisons in all of them); the sets of all arms together do not. A bootstrap of a few thousand samples has no
    quantiles that far out, so an interval is the wider of its percentiles and of a normal one with its deviation, both
    stretched by Student's t. Arms that share fewer than two seeds cannot be told apart.
    """
    level = 1 - (1 - confidence) / max(1, sets * (len(names) - 1))
    normal = NormalDist().inv_cdf((1 + level) / 2)
    behind, ahead = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for pair in combinations(names, 2):
        estimate = arms.difference(*pair, confidence=level)
        half = normal * float(np.std(estimate.replicates))
        low, high = min(estimate.low, estimate.mean - half), max(estimate.high, estimate.mean + half)
        if estimate.n > 1 and (low > 0 or high < 0):
            better, worse = pair if (low > 0) == higher_is_better else reversed(pair)
            ahead[better] += 1
            behind[worse] += 1
    return {name: RankSet(1 + behind[name], len(names) - ahead[name]) for name in names}


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

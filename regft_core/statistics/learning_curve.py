"""Forecasts for more training rows, or more trials.

Rows: a power law through the scores at several sizes. Trials: the expected best of k of them, drawn without
replacement (Tang et al., "Showing Your Work Doesn't Always Work", ACL 2020: the plug-in estimator of Dodge et al. 2019
is biased downwards).

score(n) = c - b n^-a with b >= 0, the form that learning curves of classifiers follow over a wide range (Hestness et
al., arXiv:1712.00409). ``a`` comes from a grid, c and b from weighted least squares. Every bootstrap replicate of the
scores is fitted by itself, so the interval holds the doubt about rows, seeds and the exponent. Few sizes fit a curve
that still rises and one that has levelled off alike; the width of the interval shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb

from regft_core.lazy import Array, np
from regft_core.statistics.bootstrap import Estimate

#: Fewer sizes leave nothing to judge the fit by.
FEWEST_SIZES = 3
EXPONENTS = np.linspace(0.1, 1.5, 57)
#: Replicates that are fitted.
FITTED = 1_000


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
        scores: the mean score at each size, with its bootstrap replicates.
        upwards: whether larger scores are better; the gain has the sign of the score.
        room: how far the best possible score is from the one at the largest size.
    """
    if len(set(sizes)) < FEWEST_SIZES or any(s.n == 0 for s in scores):
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


def expected_max(values: Sequence[float], k: int) -> float:
    """Return the mean, over all subsets of ``k`` of the trials' ``values``, of the subset's maximum."""
    total = comb(len(values), k)
    # The i-th smallest (0-based) is the maximum of comb(i, k - 1) subsets.
    return float(sum(float(Fraction(comb(i, k - 1), total)) * v for i, v in enumerate(sorted(values))))


def expected_max_curve(values: Sequence[float]) -> list[float]:
    """Return ``expected_max`` for every budget from 1 (the mean) to all trials (the maximum)."""
    return [expected_max(values, k) for k in range(1, len(values) + 1)]

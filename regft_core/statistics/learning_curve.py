"""What more training rows would bring: a power law through the scores at several sizes.

score(n) = c - b n^-a with b >= 0, the form that learning curves of classifiers follow over a wide range (Hestness et
al., arXiv:1712.00409). ``a`` comes from a grid, c and b from weighted least squares. Every bootstrap replicate of the
scores is fitted by itself, so the interval holds the doubt about rows, seeds and the exponent. Few sizes fit a curve
that still rises and one that has levelled off alike; the width of the interval shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regft_core.statistics.bootstrap import Estimate

Array = npt.NDArray[np.float64]

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


def expected_gain(
    sizes: Sequence[float], scores: Sequence[Estimate], factor: float, *, upwards: bool = True, room: float = np.inf
) -> Gain | None:
    """Return the gain that ``factor`` times the largest of ``sizes`` would bring, or None below three sizes.

    Args:
        sizes: numbers of training rows, all different.
        scores: the mean score at each size, with its bootstrap replicates.
        upwards: whether larger scores are better; the gain has the sign of the score.
        room: how far the best possible score is from the one at the largest size.

    Raises:
        ValueError: sizes and scores differ in number, or ``factor`` is not above 1.
    """
    if len(sizes) != len(scores):
        raise ValueError(f"{len(sizes)} sizes for {len(scores)} scores")
    if factor <= 1:
        raise ValueError(f"factor {factor} is not above 1")
    if len(set(sizes)) < FEWEST_SIZES or any(s.n == 0 for s in scores):
        return None
    sign = 1.0 if upwards else -1.0
    rows = np.asarray(sizes, dtype=np.float64)
    samples = min(FITTED, *(len(s.replicates) for s in scores))
    observed = sign * np.array([[s.mean for s in scores]])
    replicates = sign * np.stack([s.replicates[:samples] for s in scores], axis=1)
    deviations = replicates.std(axis=0)
    weights = 1 / np.maximum(deviations, max(1e-6, float(deviations.max()) / 10)) ** 2
    gains = np.clip(_gains(rows, np.concatenate([observed, replicates]), weights, factor), 0.0, room)
    ends = np.quantile(gains[1:], [(1 - scores[0].confidence) / 2, (1 + scores[0].confidence) / 2])
    low, high = sorted(sign * float(end) for end in ends)
    return Gain(factor, sign * float(gains[0]), low, high)


def _gains(rows: Array, scores: Array, weights: Array, factor: float) -> Array:
    """Fit each row of ``scores`` [B, m]; return [B] the gain from the largest size to ``factor`` times it."""
    largest = rows.max()
    best, found = np.full(len(scores), np.inf), np.zeros(len(scores))
    total = weights.sum()
    centre = (scores @ weights) / total
    for exponent in EXPONENTS:
        basis = -((rows / largest) ** -exponent)
        apart = basis - (basis @ weights) / total
        slope = np.maximum(0.0, ((scores - centre[:, None]) * weights) @ apart / (weights @ apart**2))
        wrong = (((scores - centre[:, None]) - slope[:, None] * apart) ** 2) @ weights
        better = wrong < best
        best = np.where(better, wrong, best)
        found = np.where(better, slope * (1 - factor**-exponent), found)
    return found

"""Share of the targets' variance that the predictions explain (R^2); 0 for the mean of the targets, negative below it.

R^2 = 1 - sum (y - p)^2 / sum (y - mean y)^2, which sees the scale of the predictions; a correlation does not. 0 where
the targets are constant.
"""

from __future__ import annotations

import math

from regft_core.lazy import np
from regft_core.metrics._sums import Array, is_constant

KINDS = ("regression",)
RANGE = (-math.inf, 1.0)


def score(gold: Array, predicted: Array, positive: int | None) -> float:
    if is_constant(gold):
        return 0.0
    return float(1 - np.square(gold - predicted).sum() / np.square(gold - gold.mean()).sum())


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    n = float(len(gold))
    y = gold - gold.mean(dtype=np.float64)  # centred on the full sample: no cancellation
    variance = weights @ y**2 / n - (weights @ y / n) ** 2
    error = weights @ ((predicted - gold) ** 2).T / n
    varied = (variance > 1e-12 * y.var()) & (not is_constant(gold))  # else a resample that drew one value only
    return np.where(varied[:, None], 1 - error / np.where(varied, variance, 1.0)[:, None], 0.0)

"""Pearson's correlation of targets and predictions; 0 where a side is constant."""

from __future__ import annotations

from regft_core.lazy import np
from regft_core.metrics._sums import Array, is_constant, ratio

KINDS = ("regression",)
RANGE = (-1.0, 1.0)


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    if is_constant(gold):
        return np.zeros((len(weights), len(predicted)))
    # Centred on the full sample first: the moments then lose nothing to cancellation.
    y = gold - gold.mean(dtype=np.float64)
    x = predicted - predicted.mean(axis=1, dtype=np.float64, keepdims=True)
    x[np.ptp(x, axis=1) <= 1e-6 * np.maximum(np.abs(predicted).max(axis=1), 1e-30)] = 0.0  # is_constant
    n = float(len(gold))
    mean_y, mean_x = (weights @ y / n)[:, None], weights @ x.T / n
    variance_y = (weights @ y**2 / n)[:, None] - mean_y**2
    variance_x = weights @ (x**2).T / n - mean_x**2
    scale = np.var(x, axis=1) * y.var()
    product = variance_x * variance_y
    product[product <= 1e-12 * scale] = 0.0  # a resample that drew one value only
    return ratio(weights @ (x * y).T / n - mean_x * mean_y, np.sqrt(product))

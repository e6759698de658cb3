"""Cohen's kappa with quadratic weights (Cohen, 1968): agreement of ordered labels beyond chance.

1 - E[(g - p)^2] / E'[(g - p)^2], where E' takes gold labels g and predictions p as independent. It equals
2 cov(g, p) / (var g + var p + (mean g - mean p)^2), which needs no table of K x K counts.
"""

from __future__ import annotations

from regft_core.metrics._sums import Array, ratio

KINDS = ("ordinal",)
RANGE = (-1.0, 1.0)


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    n = len(gold)  # sums of whole numbers, so that a constant side gives exactly 0
    products = (weights @ gold)[:, None] * (weights @ predicted.T)
    squares = (weights @ gold**2)[:, None] + weights @ (predicted**2).T
    return ratio(2 * (n * (weights @ (gold * predicted).T) - products), n * squares - 2 * products)

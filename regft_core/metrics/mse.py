"""Mean squared error, in the square of the targets' unit; shown as it is, not times 100."""

from __future__ import annotations

import math

from regft_core.metrics._sums import Array

KINDS = ("regression",)
LOWER_IS_BETTER = True
RANGE = (0.0, math.inf)
FACTOR = 1.0
DIGITS = 4
UNIT = "squared error"


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    return weights @ ((predicted - gold) ** 2).T / len(gold)

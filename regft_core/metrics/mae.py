"""Mean absolute error: how many labels an answer is off, in an order of labels; shown as it is, not times 100."""

from __future__ import annotations

import math

from regft_core.lazy import np
from regft_core.metrics._sums import Array

KINDS = ("ordinal",)
LOWER_IS_BETTER = True
RANGE = (0.0, math.inf)
FACTOR = 1.0
DIGITS = 3
UNIT = "labels"


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    return weights @ np.abs(predicted - gold).T / len(gold)

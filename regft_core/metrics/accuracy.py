"""The share of examples whose prediction is right: of sets of labels, exactly right (subset accuracy)."""

from __future__ import annotations

from regft_core.lazy import np
from regft_core.metrics._sums import Array

KINDS = ("classification", "multi_label")
RANGE = (0.0, 1.0)
COUNTS_EXAMPLES = True


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    return weights @ (predicted == gold).T.astype(np.float64) / len(gold)

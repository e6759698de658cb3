"""F1 averaged over the labels that occur among the gold labels or the predictions."""

from __future__ import annotations

from regft_core.lazy import np
from regft_core.metrics._sums import Array, class_counts, each_label, ratio

KINDS = ("classification", "multi_label")
RANGE = (0.0, 1.0)
BY_OFFSETS = True


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    total, occurring = np.zeros((2, len(weights), len(predicted)))
    for has, claims in each_label(gold, predicted):
        hits, claimed, present = class_counts(has, claims, weights)
        total += ratio(2 * hits, claimed + present)
        occurring += claimed + present > 0
    return ratio(total, occurring)

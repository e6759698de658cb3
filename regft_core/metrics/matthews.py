"""Matthews' correlation; with more than two labels Gorodkin's multiclass form, which contains it."""

from __future__ import annotations

from regft_core.lazy import np
from regft_core.metrics._sums import Array, class_counts, ratio

KINDS = ("classification",)
RANGE = (-1.0, 1.0)
BY_OFFSETS = True


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    n = float(len(gold))
    right, both, predicted_squares = np.zeros((3, len(weights), len(predicted)))
    gold_squares = np.zeros((len(weights), 1))
    for k in np.unique(np.concatenate([gold, predicted.ravel()])):
        hits, claimed, present = class_counts(gold == k, predicted == k, weights)
        right += hits
        both += present * claimed
        predicted_squares += claimed**2
        gold_squares += present**2
    return ratio(right * n - both, np.sqrt((n**2 - predicted_squares) * (n**2 - gold_squares)))

"""F1 of one class (the positive one) against the rest, also with three or more labels."""

from __future__ import annotations

from regft_core.metrics._sums import Array, class_counts, ratio

KINDS = ("classification",)
NEEDS_POSITIVE_LABEL = True
RANGE = (0.0, 1.0)
BY_OFFSETS = True


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    hits, claimed, present = class_counts(gold == positive, predicted == positive, weights)
    return ratio(2 * hits, claimed + present)

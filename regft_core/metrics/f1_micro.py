"""F1 of all decisions about labels together: 2 hits / (labels predicted + labels there), over rows and labels.

For tasks whose examples have several labels; with exactly one it is the accuracy.
"""

from __future__ import annotations

from regft_core.lazy import np
from regft_core.metrics._sums import Array, ratio

KINDS = ("multi_label",)
RANGE = (0.0, 1.0)
BY_OFFSETS = True


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    def labels(sets: Array) -> Array:
        return np.bitwise_count(sets).astype(np.float64)

    hits, claimed = weights @ labels(gold & predicted).T, weights @ labels(predicted).T
    return ratio(2 * hits, claimed + (weights @ labels(gold))[:, None])

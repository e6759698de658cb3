"""The mean of accuracy and F1, as GLUE averages its tasks of paraphrases."""

from __future__ import annotations

from regft_core.metrics import accuracy, f1
from regft_core.metrics._sums import Array

KINDS = ("classification",)
NEEDS_POSITIVE_LABEL = True
RANGE = (0.0, 1.0)


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    parts = [part(gold, predicted, weights, positive) for part in (accuracy.weighted, f1.weighted)]
    return (parts[0] + parts[1]) / 2

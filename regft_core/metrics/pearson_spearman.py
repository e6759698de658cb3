"""The mean of Pearson's and Spearman's correlation, as GLUE scores its task of similarity."""

from __future__ import annotations

from regft_core.metrics import pearson, spearman
from regft_core.metrics._sums import Array

KINDS = ("regression",)
RANGE = (-1.0, 1.0)


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    parts = [part(gold, predicted, weights, positive) for part in (pearson.weighted, spearman.weighted)]
    return (parts[0] + parts[1]) / 2

"""Spearman's correlation, with mid-ranks for ties; 0 where a side is constant."""

from __future__ import annotations

from regft_core.lazy import np
from regft_core.metrics._sums import Array, is_constant, ratio

KINDS = ("regression",)
RANGE = (-1.0, 1.0)


def weighted(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """Pearson's correlation of the mid-ranks that the examples have within each resample.

    Ranks are those of groups of equal values, whose sizes in a resample give the mid-rank (running
    total) and the variance (the tie correction). Examples are the first axis here: it is faster.
    """
    values = np.zeros((len(weights), len(predicted)))
    if is_constant(gold):
        return values
    n = float(len(gold))
    drawn = np.ascontiguousarray(weights.T)
    order, starts = _equal_values(gold)
    sizes = np.add.reduceat(drawn[order], starts, axis=0)
    group = np.empty(len(gold), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(gold)]))
    weighted_ranks = drawn * _mid_ranks(sizes, n)[group]
    variance_y = _rank_variance(sizes, n)
    for r, row in enumerate(predicted):
        if is_constant(row):
            continue
        order, starts = _equal_values(row)
        sizes, sums = drawn[order], weighted_ranks[order]
        if len(starts) < len(order):
            sizes, sums = np.add.reduceat(sizes, starts, axis=0), np.add.reduceat(sums, starts, axis=0)
        sums *= _mid_ranks(sizes, n)
        values[:, r] = ratio(sums.sum(axis=0), np.sqrt(_rank_variance(sizes, n) * variance_y))
    return values


def _equal_values(values: Array) -> tuple[Array, Array]:
    """Return (order that sorts ``values``, positions in that order where a new value starts)."""
    order = np.argsort(values, kind="stable")
    return order, np.flatnonzero(np.r_[True, np.diff(values[order]) > 0])


def _mid_ranks(sizes: Array, n: float) -> Array:
    """Mid-ranks minus their mean, [groups, B], from the sizes of groups in ascending order."""
    ranks = np.cumsum(sizes, axis=0)
    ranks -= sizes / 2
    ranks -= n / 2
    return ranks


def _rank_variance(sizes: Array, n: float) -> Array:
    return (n**3 - n - np.einsum("gb,gb,gb->b", sizes, sizes, sizes) + n) / 12

"""Helpers that several metrics share: sums over weighted examples, and what counts as constant.

A resample of n examples is a row of weights (how often each example was drawn). Every metric but
Spearman's is a function of a few sums over examples (confusion counts or moments), so the metric
of B resamples for R rows of predictions is one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator

from regft_core.lazy import Array, np


def is_constant(values: Array) -> bool:
    """Return whether ``values`` [n] differ by no more than float32 rounding (relative 1e-6)."""
    return bool(np.ptp(values) <= 1e-6 * max(float(np.abs(values).max()), 1e-30))


def ratio(numerator: Array, denominator: Array) -> Array:
    """Divide, giving 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def class_counts(gold: Array, predicted: Array, weights: Array) -> tuple[Array, Array, Array]:
    """From boolean gold [n] and predictions [R, n]: (hits [B, R], predicted [B, R], gold [B, 1])."""
    used = gold | predicted.any(axis=0)  # with many classes, a small part of the examples
    some = weights[:, used]
    of_class, rows = gold[used], predicted[:, used].T
    hits = some @ (rows & of_class[:, None]).astype(np.float64)
    return hits, some @ rows.astype(np.float64), (some @ of_class.astype(np.float64))[:, None]


def each_label(gold: Array, predicted: Array) -> Iterator[tuple[Array, Array]]:
    """Of each label that occurs: where gold [n] and predictions [R, n] (or [n]) have it, as booleans.

    Integers are indices of labels; of uint64, which are sets of labels, bit k is label k.
    """
    if gold.dtype != np.uint64:
        for k in np.unique(np.concatenate([gold, predicted.ravel()])):
            yield gold == k, predicted == k
        return
    occurring = int(np.bitwise_or.reduce(gold) | np.bitwise_or.reduce(predicted, axis=None))
    for k in range(occurring.bit_length()):
        bit = np.uint64(1 << k)
        if occurring >> k & 1:
            yield gold & bit != 0, predicted & bit != 0

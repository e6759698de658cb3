"""Scores of many resamples at once: the functions of the table in ``__init__.py``, and what they share.

A resample of n examples is a row of weights (how often each example was drawn). Every metric but Spearman's is a
function of a few sums over examples, so that of B resamples for R rows of predictions is one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator

from regft_core.lazy import Array, np


def is_constant(values: Array) -> bool:
    """Return whether ``values`` [n] differ by no more than float32 rounding (relative 1e-6)."""
    return bool(np.ptp(values) <= 1e-6 * max(float(np.abs(values).max()), 1e-30))


def ratio(numerator: Array, denominator: Array) -> Array:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def apart(total: Array | float, part: Array) -> Array:
    """Subtract, giving 0 where nothing but rounding is left: weights of folds' resamples are no whole numbers."""
    left = total - part
    return np.where(left > 1e-9 * total, left, 0.0)


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


def accuracy(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """The share of examples whose prediction is right: of sets of labels, exactly right (subset accuracy)."""
    return weights @ (predicted == gold).T.astype(np.float64) / len(gold)


def f1(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """F1 of one class (the positive one) against the rest, also with three or more labels."""
    hits, claimed, present = class_counts(gold == positive, predicted == positive, weights)
    return ratio(2 * hits, claimed + present)


def accuracy_f1(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """The mean of accuracy and F1, as GLUE averages its tasks of paraphrases."""
    return (accuracy(gold, predicted, weights, positive) + f1(gold, predicted, weights, positive)) / 2


def f1_macro(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """F1 averaged over the labels that occur among the gold labels or the predictions."""
    total, occurring = np.zeros((2, len(weights), len(predicted)))
    for has, claims in each_label(gold, predicted):
        hits, claimed, present = class_counts(has, claims, weights)
        total += ratio(2 * hits, claimed + present)
        occurring += claimed + present > 0
    return ratio(total, occurring)


def f1_micro(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """F1 of all decisions about labels together: 2 hits / (labels predicted + labels there), over rows and labels."""

    def labels(sets: Array) -> Array:
        return np.bitwise_count(sets).astype(np.float64)

    hits, claimed = weights @ labels(gold & predicted).T, weights @ labels(predicted).T
    return ratio(2 * hits, claimed + (weights @ labels(gold))[:, None])


def matthews(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """Matthews' correlation; with more than two labels Gorodkin's multiclass form, which contains it."""
    n = float(len(gold))
    right, both, predicted_squares = np.zeros((3, len(weights), len(predicted)))
    gold_squares = np.zeros((len(weights), 1))
    for has, claims in each_label(gold, predicted):
        hits, claimed, present = class_counts(has, claims, weights)
        right += hits
        both += present * claimed
        predicted_squares += claimed**2
        gold_squares += present**2
    return ratio(right * n - both, np.sqrt(apart(n**2, predicted_squares) * apart(n**2, gold_squares)))


def kappa_quadratic(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """Cohen's kappa with quadratic weights (Cohen, 1968): agreement of ordered labels beyond chance.

    2 cov(g, p) / (var g + var p + (mean g - mean p)^2) of gold labels g and predictions p.
    """
    n = len(gold)
    products = (weights @ gold)[:, None] * (weights @ predicted.T)
    squares = (weights @ gold**2)[:, None] + weights @ (predicted**2).T
    return ratio(2 * (n * (weights @ (gold * predicted).T) - products), apart(n * squares, 2 * products))


def mae(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """Mean absolute error: how many labels an answer is off, in an order of labels."""
    return weights @ np.abs(predicted - gold).T / len(gold)


def mse(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """Mean squared error, in the square of the targets' unit."""
    return weights @ ((predicted - gold) ** 2).T / len(gold)


def r2(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """Share of the targets' variance that the predictions explain (R^2).

    1 - sum (y - p)^2 / sum (y - mean y)^2; 0 where the targets, or those that a resample drew, are constant.
    """
    n = float(len(gold))
    y = gold - gold.mean(dtype=np.float64)  # centred on the full sample: no cancellation
    variance = weights @ y**2 / n - (weights @ y / n) ** 2
    error = weights @ ((predicted - gold) ** 2).T / n
    varied = (variance > 1e-12 * y.var()) & (not is_constant(gold))
    return np.where(varied[:, None], 1 - error / np.where(varied, variance, 1.0)[:, None], 0.0)


def pearson(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """Pearson's correlation of targets and predictions; 0 where a side is constant."""
    if is_constant(gold):
        return np.zeros((len(weights), len(predicted)))
    # Centred on the full sample first: the moments then lose nothing to cancellation.
    y = gold - gold.mean(dtype=np.float64)
    x = predicted - predicted.mean(axis=1, dtype=np.float64, keepdims=True)
    x[np.ptp(x, axis=1) <= 1e-6 * np.maximum(np.abs(predicted).max(axis=1), 1e-30)] = 0.0  # is_constant
    n = float(len(gold))
    mean_y, mean_x = (weights @ y / n)[:, None], weights @ x.T / n
    variance_y = (weights @ y**2 / n)[:, None] - mean_y**2
    variance_x = weights @ (x**2).T / n - mean_x**2
    scale = np.var(x, axis=1) * y.var()
    product = variance_x * variance_y
    product[product <= 1e-12 * scale] = 0.0  # a resample that drew one value only
    return ratio(weights @ (x * y).T / n - mean_x * mean_y, np.sqrt(product))


def spearman(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """Spearman's correlation, that of the mid-ranks within each resample; 0 where a side is constant.

    The sizes of groups of equal values in a resample give mid-ranks (running total) and variance (tie correction).
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


def pearson_spearman(gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
    """The mean of Pearson's and Spearman's correlation, as GLUE scores its task of similarity."""
    return (pearson(gold, predicted, weights, positive) + spearman(gold, predicted, weights, positive)) / 2

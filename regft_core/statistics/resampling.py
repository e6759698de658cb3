"""Bootstrap weights, and metrics of many resamples at once.

A resample of n examples is a row of weights (how often each example was drawn). Every metric
but Spearman's is a function of a few sums over examples (confusion counts or moments), so
the metric of B resamples for R rows of predictions is one matrix product.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.rng import derive

Array = npt.NDArray[Any]
#: (labels [n], predictions [R, n], weights [B, n] that sum to n per row) -> values [B, R]
WeightedMetric = Callable[[Array, Array, Array], Array]

_CACHE: OrderedDict[tuple[int, int, int], npt.NDArray[np.uint8]] = OrderedDict()
_CACHE_BYTES = 256 * 2**20
_CHUNK = 2**21  # weights held as float64 at a time


def example_weights(n: int, samples: int, seed: int) -> npt.NDArray[np.uint8]:
    """Return [samples, n] counts of drawing n of n examples with replacement.

    The last results are kept, so that comparing many arms on one set draws once. A count above 255
    does not occur: the chance is below 1e-500.
    """
    key = (n, samples, seed)
    if key not in _CACHE:
        rng = np.random.default_rng(derive(seed, "statistics.examples", n))
        counts = np.empty((samples, n), dtype=np.uint8)
        step = max(1, _CHUNK // n)
        for start in range(0, samples, step):
            rows = min(step, samples - start)
            drawn = rng.integers(n, size=(rows, n), dtype=np.int32) + np.arange(rows, dtype=np.int32)[:, None] * n
            counts[start : start + rows] = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        _CACHE[key] = counts
        while len(_CACHE) > 1 and sum(c.nbytes for c in _CACHE.values()) > _CACHE_BYTES:
            _CACHE.popitem(last=False)
    _CACHE.move_to_end(key)
    return _CACHE[key]


def seed_weights(n: int, samples: int, seed: int) -> npt.NDArray[np.float64]:
    """Return [samples, n] fractions (rows sum to 1) of drawing n of n seeds with replacement."""
    rng = np.random.default_rng(derive(seed, "statistics.seeds", n))
    return rng.multinomial(n, np.full(n, 1 / n), size=samples) / n


def resampled_metric(
    metric: str | WeightedMetric,
    labels: Array,
    predictions: Array,
    *,
    samples: int,
    seed: int,
    positive_label_index: int | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the metric of each row of ``predictions`` [R, n]: (as observed [R], resampled [samples, R]).

    All rows and all calls with one ``seed`` see the same resamples, which pairs what is compared.

    Raises:
        ValueError: the metric is unknown, or F1 has no positive label.
    """
    weighted = weighted_metric(metric, positive_label_index) if isinstance(metric, str) else metric
    n = len(labels)
    observed = weighted(labels, predictions, np.ones((1, n)))[0]
    counts = example_weights(n, samples, seed)
    values = np.empty((samples, len(predictions)))
    step = max(1, _CHUNK // n)
    for start in range(0, samples, step):
        values[start : start + step] = weighted(labels, predictions, counts[start : start + step].astype(np.float64))
    return observed, values


def weighted_metric(name: str, positive_label_index: int | None = None) -> WeightedMetric:
    """Return metric ``name`` as a function of weights; it agrees with ``evaluation.metrics`` on every resample."""
    if name in ("f1", "accuracy_f1") and positive_label_index is None:
        raise ValueError(f"{name} needs the index of the positive label")
    positive = positive_label_index if positive_label_index is not None else -1
    table: dict[str, WeightedMetric] = {
        "accuracy": _accuracy,
        "f1": lambda y, p, w: _f1(y == positive, p == positive, w),
        "accuracy_f1": lambda y, p, w: (_accuracy(y, p, w) + _f1(y == positive, p == positive, w)) / 2,
        "f1_macro": _f1_macro,
        "matthews": _matthews,
        "pearson": _pearson,
        "spearman": _spearman,
        "pearson_spearman": lambda y, p, w: (_pearson(y, p, w) + _spearman(y, p, w)) / 2,
        "mse": lambda y, p, w: w @ ((p - y) ** 2).T / len(y),
    }
    if name not in table:
        raise ValueError(f"unknown metric {name!r}; known: {', '.join(table)}")
    return table[name]


def _accuracy(labels: Array, predictions: Array, weights: Array) -> Array:
    return weights @ (predictions == labels).T.astype(np.float64) / len(labels)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Divide, giving 0 where the denominator is 0 (as ``evaluation.metrics`` defines it)."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def _class_counts(labels: Array, predictions: Array, weights: Array) -> tuple[Array, Array, Array]:
    """From boolean labels [n] and predictions [R, n]: (hits [B, R], predicted [B, R], gold [B, 1])."""
    used = labels | predictions.any(axis=0)  # with many classes, a small part of the examples
    some = weights[:, used]
    gold, predicted = labels[used], predictions[:, used].T
    hits = some @ (predicted & gold[:, None]).astype(np.float64)
    return hits, some @ predicted.astype(np.float64), (some @ gold.astype(np.float64))[:, None]


def _f1(labels: Array, predictions: Array, weights: Array) -> Array:
    """F1 of boolean labels [n] and predictions [R, n]."""
    hits, predicted, gold = _class_counts(labels, predictions, weights)
    return _ratio(2 * hits, predicted + gold)


def _f1_macro(labels: Array, predictions: Array, weights: Array) -> Array:
    total, present = np.zeros((2, len(weights), len(predictions)))
    for k in np.unique(np.concatenate([labels, predictions.ravel()])):
        hits, predicted, gold = _class_counts(labels == k, predictions == k, weights)
        total += _ratio(2 * hits, predicted + gold)
        present += predicted + gold > 0
    return _ratio(total, present)


def _matthews(labels: Array, predictions: Array, weights: Array) -> Array:
    """Gorodkin's multiclass form, which for two classes is the usual coefficient."""
    n = float(len(labels))
    right, both, predicted_squares = np.zeros((3, len(weights), len(predictions)))
    gold_squares = np.zeros((len(weights), 1))
    for k in np.unique(np.concatenate([labels, predictions.ravel()])):
        hits, predicted, gold = _class_counts(labels == k, predictions == k, weights)
        right += hits
        both += gold * predicted
        predicted_squares += predicted**2
        gold_squares += gold**2
    return _ratio(right * n - both, np.sqrt((n**2 - predicted_squares) * (n**2 - gold_squares)))


def _pearson(labels: Array, predictions: Array, weights: Array) -> Array:
    # Centred on the full sample first: the moments then lose nothing to cancellation.
    y = labels - labels.mean(dtype=np.float64)
    x = predictions - predictions.mean(axis=1, dtype=np.float64, keepdims=True)
    x[np.ptp(x, axis=1) <= 1e-6 * np.maximum(np.abs(predictions).max(axis=1), 1e-30)] = 0.0  # metrics.is_constant
    n = float(len(labels))
    mean_y, mean_x = (weights @ y / n)[:, None], weights @ x.T / n
    variance_y = (weights @ y**2 / n)[:, None] - mean_y**2
    variance_x = weights @ (x**2).T / n - mean_x**2
    scale = np.var(x, axis=1) * y.var()
    product = variance_x * variance_y
    product[product <= 1e-12 * scale] = 0.0  # a resample that drew one value only
    return _ratio(weights @ (x * y).T / n - mean_x * mean_y, np.sqrt(product))


def _spearman(labels: Array, predictions: Array, weights: Array) -> Array:
    """Pearson's correlation of the mid-ranks that the examples have within each resample.

    Ranks are those of groups of equal values, whose sizes in a resample give the mid-rank (running
    total) and the variance (the tie correction). Examples are the first axis here: it is faster.
    """
    n = float(len(labels))
    drawn = np.ascontiguousarray(weights.T)
    order, starts = _equal_values(labels)
    sizes = np.add.reduceat(drawn[order], starts, axis=0)
    group = np.empty(len(labels), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(labels)]))
    weighted_ranks = drawn * _mid_ranks(sizes, n)[group]
    variance_y = _rank_variance(sizes, n)
    values = np.zeros((len(weights), len(predictions)))
    for r, row in enumerate(predictions):
        if np.ptp(row) <= 1e-6 * max(float(np.abs(row).max()), 1e-30):  # metrics.is_constant
            continue
        order, starts = _equal_values(row)
        sizes, sums = drawn[order], weighted_ranks[order]
        if len(starts) < len(order):
            sizes, sums = np.add.reduceat(sizes, starts, axis=0), np.add.reduceat(sums, starts, axis=0)
        sums *= _mid_ranks(sizes, n)
        values[:, r] = _ratio(sums.sum(axis=0), np.sqrt(_rank_variance(sizes, n) * variance_y))
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

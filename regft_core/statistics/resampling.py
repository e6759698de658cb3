"""Bootstrap weights, and metrics of many resamples at once.

A resample of n examples is a row of weights (how often each example was drawn). What a metric makes
of weights is in its file (``regft_core/metrics``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
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


@lru_cache(maxsize=32)
def seed_weights(n: int, samples: int, seed: int) -> npt.NDArray[np.float64]:
    """Return [samples, n] fractions (rows sum to 1) of drawing n of n seeds with replacement; read-only."""
    rng = np.random.default_rng(derive(seed, "statistics.seeds", n))
    weights = rng.multinomial(n, np.full(n, 1 / n), size=samples) / n
    weights.flags.writeable = False
    return weights


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
    """Return metric ``name`` as a function of weights; it agrees with ``Metric.score`` on every resample.

    A metric whose file has no ``weighted`` is computed on the rows of every resample.
    """
    metric = metrics.find(name)
    if metric.needs_positive_label and positive_label_index is None:
        raise ValueError(f"{name} needs the index of the positive label")
    given = metric.weighted
    if given is not None:
        return lambda labels, predictions, weights: given(labels, predictions, weights, positive_label_index)

    def one_by_one(labels: Array, predictions: Array, weights: Array) -> Array:
        values = np.empty((len(weights), len(predictions)))
        for b, counts in enumerate(weights):
            drawn = np.repeat(np.arange(len(labels)), counts.astype(np.int64))
            for r, row in enumerate(predictions):
                values[b, r] = metric.score(labels[drawn], row[drawn], positive_label_index)
        return values

    return one_by_one

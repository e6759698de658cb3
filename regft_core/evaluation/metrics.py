"""Metrics of one run on one set; each metric is a file of ``regft_core/metrics``.

Whatever is undefined because a side is constant (a correlation, Matthews, F1 without a positive)
is 0.0: no evidence of skill. ``collapse.detect`` flags such runs, so that the zero never stands
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.errors import DataError, RunFailed
from regft_core.names import suggestion


def compute(
    names: Sequence[str],
    *,
    kind: str,
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    positive_label_index: int | None = None,
) -> dict[str, float]:
    """Return ``{name: value}`` for the metrics ``names``, in their order.

    ``labels`` and ``predictions`` have shape [n]: class indices, or values of a regression.
    ``positive_label_index`` is needed by metrics that count one class (F1) only.

    Raises:
        DataError: no example, different lengths, a metric that does not fit ``kind``, gold labels that
            are not finite, or F1 without a positive label.
        RunFailed: a prediction is NaN or infinite.
    """
    gold, predicted = check_pair(kind, labels, predictions)
    return {
        name: _fitting(name, kind, positive_label_index).score(gold, predicted, positive_label_index) for name in names
    }


def check_pair(
    kind: str, labels: npt.ArrayLike, predictions: npt.ArrayLike
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return both as arrays [n] (int64 for classes, float64 for values) after checking them; raises as ``compute``."""
    metrics.check_kind(kind)
    gold, predicted = np.asarray(labels), np.asarray(predictions)
    if gold.ndim != 1 or gold.shape != predicted.shape:
        raise DataError(
            "wrong-shape", f"labels {gold.shape} and predictions {predicted.shape} must both have shape [n]"
        )
    if gold.size == 0:
        raise DataError("no-rows", "the set has no examples, so it has no metrics; check its split in the task's YAML")
    for what, values in (("label", gold), ("prediction", predicted)):
        bad = ~np.isfinite(values.astype(np.float64))
        if bad.any():
            text = f"{int(bad.sum())} of {bad.size} {what}s are NaN or infinite (first at row {int(bad.argmax())})"
            raise DataError("not-finite", text) if what == "label" else RunFailed("not-finite", text)
        if kind == "classification" and not np.issubdtype(values.dtype, np.integer):
            raise DataError(
                "not-class-indices", f"classification {what}s are class indices (integers), not {values.dtype}"
            )
        if kind == "classification" and values.min() < 0:
            hint = (
                "; -1 usually marks the hidden labels of a test split, so use another split" if what == "label" else ""
            )
            raise DataError(
                "negative-class-index",
                f"{what} {int(values.min())} at row {int(values.argmin())} is not a class index{hint}",
            )
    dtype = np.int64 if kind == "classification" else np.float64
    return gold.astype(dtype), predicted.astype(dtype)


def majority_predictions(kind: str, labels: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return [n] predictions of the best baseline that ignores the input.

    Classification: the set's most frequent label (the lower index among equals). Regression: the mean label.
    """
    gold = np.asarray(labels)
    if kind == "classification":
        return np.full(gold.shape, np.bincount(gold).argmax(), dtype=np.int64)
    return np.full(gold.shape, gold.mean(dtype=np.float64), dtype=np.float64)


def _fitting(name: str, kind: str, positive: int | None) -> metrics.Metric:
    metric = metrics.find(name) if name in metrics.names() else None
    if metric is None or kind not in metric.kinds:
        raise DataError(
            "metric-does-not-fit", f"'{name}' is not a metric of a {kind} task; {suggestion(name, metrics.names(kind))}"
        )
    if metric.needs_positive_label and positive is None:
        raise DataError(
            "positive-label-missing", f"{name} needs 'positive_label' in the task's YAML (by default its last label)"
        )
    return metric

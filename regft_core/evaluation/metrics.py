"""Metrics of one run on one set, from scikit-learn and scipy.

Conventions where the formulas leave a choice:

- ``f1`` counts one class (the positive one) against the rest, also with three or more labels.
- ``f1_macro`` averages over the labels that occur among the gold labels or the predictions.
- Whatever is undefined because a side is constant (a correlation, Matthews, F1 without a
  positive) is 0.0: no evidence of skill. ``collapse.detect`` flags such runs, so that the
  zero never stands alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.errors import DataError, RunFailed
from regft_core.evaluation.names import allowed_metrics


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
    ``positive_label_index`` is needed by ``f1`` and ``accuracy_f1`` only.

    Raises:
        DataError: no example, different lengths, a metric that does not fit ``kind``, gold labels that
            are not finite, or F1 without a positive label.
        RunFailed: a prediction is NaN or infinite.
    """
    gold, predicted = check_pair(kind, labels, predictions)
    return {name: _metric(name, kind, gold, predicted, positive_label_index) for name in names}


def check_pair(
    kind: str, labels: npt.ArrayLike, predictions: npt.ArrayLike
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return both as arrays [n] (int64 for classes, float64 for values) after checking them; raises as ``compute``."""
    allowed_metrics(kind)
    gold, predicted = np.asarray(labels), np.asarray(predictions)
    if gold.ndim != 1 or gold.shape != predicted.shape:
        raise DataError(f"labels {gold.shape} and predictions {predicted.shape} must both have shape [n]")
    if gold.size == 0:
        raise DataError("the set has no examples, so it has no metrics; check its split in the task's YAML")
    for what, values, error in (("label", gold, DataError), ("prediction", predicted, RunFailed)):
        bad = ~np.isfinite(values.astype(np.float64))
        if bad.any():
            raise error(
                f"{int(bad.sum())} of {bad.size} {what}s are NaN or infinite (first at row {int(bad.argmax())})"
            )
        if kind == "classification" and not np.issubdtype(values.dtype, np.integer):
            raise DataError(f"classification {what}s are class indices (integers), not {values.dtype}")
        if kind == "classification" and values.min() < 0:
            hint = (
                "; -1 usually marks the hidden labels of a test split, so use another split" if what == "label" else ""
            )
            raise DataError(f"{what} {int(values.min())} at row {int(values.argmin())} is not a class index{hint}")
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


def is_constant(values: npt.NDArray[Any]) -> bool:
    """Return whether ``values`` [n] differ by no more than float32 rounding (relative 1e-6)."""
    return bool(np.ptp(values) <= 1e-6 * max(float(np.abs(values).max()), 1e-30))


def _metric(name: str, kind: str, gold: npt.NDArray[Any], predicted: npt.NDArray[Any], positive: int | None) -> float:
    if name == "accuracy" and kind == "classification":
        return float(np.mean(gold == predicted))
    if name == "f1" and kind == "classification":
        if positive is None:
            raise DataError("f1 needs 'positive_label' in the task's YAML (by default its last label)")
        from sklearn.metrics import f1_score

        return float(f1_score(gold == positive, predicted == positive, zero_division=0.0))
    if name == "f1_macro" and kind == "classification":
        from sklearn.metrics import f1_score

        return float(f1_score(gold, predicted, average="macro", zero_division=0.0))
    if name == "matthews" and kind == "classification":
        if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
            return 0.0
        from sklearn.metrics import matthews_corrcoef

        return float(matthews_corrcoef(gold, predicted))
    if name == "accuracy_f1" and kind == "classification":
        parts = [_metric(part, kind, gold, predicted, positive) for part in ("accuracy", "f1")]
        return sum(parts) / 2
    if name in ("pearson", "spearman") and kind == "regression":
        if gold.size < 2 or is_constant(gold) or is_constant(predicted):
            return 0.0
        from scipy.stats import pearsonr, spearmanr

        return float((pearsonr if name == "pearson" else spearmanr)(gold, predicted).statistic)
    if name == "pearson_spearman" and kind == "regression":
        parts = [_metric(part, kind, gold, predicted, positive) for part in ("pearson", "spearman")]
        return sum(parts) / 2
    if name == "mse" and kind == "regression":
        return float(np.mean((gold - predicted) ** 2))
    allowed = allowed_metrics(kind)
    near = difflib.get_close_matches(name, allowed, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise DataError(f"'{name}' is not a metric of a {kind} task; allowed: {', '.join(allowed)}{hint}")

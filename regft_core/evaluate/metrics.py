"""Metrics of one run on one set; each metric is a file of ``regft_core/metrics``.

Whatever is undefined because a side is constant (a correlation, Matthews, F1 without a positive)
is 0.0: no evidence of skill. ``Kind.collapsed`` flags such runs, so that the zero never stands
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.errors import DataError, RunFailed
from regft_core.kinds import find
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
    """Return both as arrays [n] (of the kind's ``dtype``) after checking them; raises DataError as ``compute``."""
    own = find(kind)
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
            mend = "correct the labels of the set" if what == "label" else "lower training.learning_rate, or use fp32"
            first = int(bad.argmax())
            text = f"{int(bad.sum())} of {bad.size} {what}s are NaN or infinite (first at row {first})\n    -> {mend}"
            raise DataError("not-finite", text) if what == "label" else RunFailed("not-finite", text)
        if wrong := own.wrong_values(values, what):
            raise DataError("not-class-indices", wrong)
    return gold.astype(own.dtype), predicted.astype(own.dtype)


def _fitting(name: str, kind: str, positive: int | None) -> metrics.Metric:
    metric = metrics.find(name) if name in metrics.names() else None
    if metric is None or kind not in metric.kinds:
        raise DataError(
            "metric-does-not-fit", f"'{name}' is not a metric of a {kind} task; {suggestion(name, metrics.names(kind))}"
        )
    if metric.needs_positive_label and positive is None:
        raise DataError(
            "positive-label-missing",
            f"{name} needs 'positive_label' in the task's YAML (by default its last label)\n"
            "    -> add 'positive_label:' with one of its labels",
        )
    return metric

"""Does a run do anything beyond a baseline that ignores the input?

A collapsed run still has a respectable accuracy (0.684 on MRPC is its majority class), so it
is flagged instead of being left to the reader. The flags:

``constant``
    Every prediction is the same (classification; a set with one gold label is exempt when the
    prediction is that label), or predictions carry no linear signal: they are equal up to
    float32 rounding or |Pearson| < 0.05, a quarter of a per cent of the variance (regression).
``majority``
    Predictions vary but accuracy is not above the rate of the set's most frequent label, or
    Pearson <= -0.05, below the 0 of a constant prediction. Sets with one gold label are exempt.

On the development set either flag means that a constant answer would have served as well. It does
not mean that nothing was learned: with rare labels Matthews' correlation can be above 0 all the
same. Out of distribution ``majority`` can be a real effect: a model that relies on a shortcut is
often below it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from regft_core.evaluation.metrics import check_pair
from regft_core.metrics._sums import is_constant

#: Below this |Pearson| a regression's predictions count as constant.
CORRELATION_THRESHOLD = 0.05

Collapse = Literal["constant", "majority"]


def detect(kind: str, labels: npt.ArrayLike, predictions: npt.ArrayLike) -> Collapse | None:
    """Return how the predictions [n] are collapsed, or None; raises as ``metrics.compute``."""
    gold, predicted = check_pair(kind, labels, predictions)
    if kind == "classification":
        accuracy = float(np.mean(gold == predicted))
        if np.all(gold == gold[0]):
            return "constant" if np.all(predicted == predicted[0]) and accuracy < 1 else None
        if np.all(predicted == predicted[0]):
            return "constant"
        return "majority" if accuracy <= np.bincount(gold).max() / gold.size else None
    if is_constant(predicted):
        return "constant"
    if gold.size < 3 or is_constant(gold):  # no correlation to speak of
        return None
    correlation = float(np.corrcoef(gold, predicted)[0, 1])
    if abs(correlation) < CORRELATION_THRESHOLD:
        return "constant"
    return "majority" if correlation < 0 else None

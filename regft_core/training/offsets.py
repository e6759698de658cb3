"""Decisions fitted to a metric: offsets of the logits, from out-of-fold answers to the training rows.

With F1 or Matthews' correlation the most probable label is not the best decision: with 5% positives hardly a row has a
probability above 0.5. The offsets are one number times a direction, so that few rows of a rare label suffice: the log
ratio of the largest class's rows to those of each class (Menon et al., ICLR 2021, whose number is 1), the positive
class alone where the metric counts one class, and of several labels also the same offset for all. The number is the
best on average over resampled rows; of equal ones the smallest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.hooks.declare import Setting
from regft_core.kinds import Kind, find
from regft_core.kinds._decision import Decision
from regft_core.rng import derive

Array = npt.NDArray[np.float64]

#: Multiples of a direction that are tried; 0, the most probable label, is one of them.
STEPS = np.arange(-10, 61) / 40
#: Resamples of the rows over which a multiple is judged.
RESAMPLES = 50


def fit_decision(
    kind: Kind, logits: Array, gold: npt.NDArray[np.int64] | npt.NDArray[np.uint64], metric: str, positive: int | None
) -> Decision:
    """Return the decision with the best ``metric``.

    Args:
        logits: [n, K] of each row under a fit that did not see it; NaN for rows that every fit saw, which are not
            counted.
        gold: [n] labels of these rows, as ``Kind.indicators`` reads them.
        positive: what F1 of one class counts.
    """
    judge, outputs = metrics.find(metric), logits.shape[1]
    present = kind.indicators(gold, outputs)
    at_least_one = not kind.one_label and bool(present.any(axis=1).all())
    rows = ~np.isnan(logits).any(axis=1)
    judged, labels = logits[rows], gold[rows].astype(kind.dtype)
    none = Decision((0.0,) * outputs, at_least_one)
    if not len(labels) or judge.weighted is None:
        return none
    counts = present.sum(axis=0)
    several = _log_ratio(len(gold) - counts, counts)
    directions = [_log_ratio(counts.max(), counts)]
    if not kind.one_label:
        directions = [np.full(outputs, max(1.0, float(several.mean()))), np.maximum(several, 0.0)]
    elif judge.needs_positive_label:
        directions = [np.where(np.arange(outputs) == positive, max(1.0, abs(float(several[positive]))), 0.0)]
    offsets = np.unique([step * direction for direction in directions for step in STEPS], axis=0)
    offsets = offsets[np.argsort(np.abs(offsets).sum(axis=1), kind="stable")]  # the first of equals is the smallest
    every = np.arange(outputs)
    decided = [kind.predictions(Decision(tuple(one), at_least_one).logits(judged), every) for one in offsets]
    draws = np.random.default_rng(derive(0, "decision.resamples")).integers(0, len(labels), (RESAMPLES, len(labels)))
    weights = np.array([np.bincount(draw, minlength=len(labels)) for draw in draws], dtype=np.float64)
    sign = -1.0 if judge.lower_is_better else 1.0
    scores = sign * judge.weighted(labels, np.array(decided).astype(kind.dtype), weights, positive).mean(axis=0)
    return Decision(tuple(offsets[int(scores.argmax())].tolist()), at_least_one)


def decision_of(setting: Setting, left_out: Array | None, labels: npt.NDArray[Any]) -> Decision | None:
    """Return the decision of a solved head: None where the most probable label is it, or no fold left rows out.

    Args:
        left_out: [n, K] as ``Solution.left_out``; ``labels``: [n] of the same rows.
    """
    if setting.metric is None or left_out is None or not metrics.find(setting.metric).by_offsets:
        return None
    return fit_decision(find(setting.kind), left_out, labels, setting.metric, setting.positive)


def _log_ratio(above: npt.NDArray[np.int64], below: npt.NDArray[np.int64]) -> Array:
    """log(above / below), 0 where either is 0."""
    ratio = np.where((above > 0) & (below > 0), above / np.maximum(below, 1), 1.0)
    found: Array = np.log(np.where(ratio > 0, ratio, 1.0))
    return found

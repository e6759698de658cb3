"""The contract of one metric, tried on generated labels of every kind that it fits: ``regft test-metric``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.catalogue import METRICS, use_project
from regft_core.contract import Promise, require, tried
from regft_core.kinds import find as find_kind
from regft_core.metrics import Metric

Array = npt.NDArray[Any]
#: Rows, labels, resamples and predictions of a trial.
ROWS, LABELS, RESAMPLES, PREDICTIONS = 40, 3, 4, 2
TOLERANCE = 1e-9


def check_metric(root: Path, name: str) -> Iterator[Promise]:
    """Try the contract of the metric ``name`` as the project at ``root`` sees it; each promise as it is tried.

    Raises ConfigError: there is none of that name, or its file is broken.
    """
    use_project(root)
    require(METRICS, name)
    metric = metrics.find(name)
    yield Promise("its file declares what it is", True)
    for says, law in _LAWS.items():
        yield tried(says, partial(_on_every_kind, metric, law))
    unsaid = "" if metric.weighted is not None else "the file has no weighted(), so resamples are scored one by one"
    law = partial(_on_every_kind, metric, _weighted)
    yield tried("weighted() counts a row as often as its weight says", law, unsaid)
    unsaid = "" if metric.counts_examples else "the file does not declare COUNTS_EXAMPLES"
    yield tried("it is a mean over examples", partial(_on_every_kind, metric, _counts), unsaid)


def _on_every_kind(metric: Metric, law: Callable[[Metric, Array, Array, int | None], str]) -> str:
    wrong = []
    for kind in metric.kinds:
        dtype = find_kind(kind).dtype
        # Two labels where one of them counts, so that the others are the negative.
        labels, positive = (2, 1) if metric.needs_positive_label else (LABELS, None)
        gold, predicted = (_drawn(dtype, labels, seed) for seed in (0, 1))
        predicted = np.where(np.arange(ROWS) % 2 == 0, gold, predicted)  # better than chance
        copies = gold.copy(), predicted.copy()
        if found := law(metric, gold, predicted, positive):
            wrong.append(f"{kind}: {found}")
        elif not (np.array_equal(gold, copies[0]) and np.array_equal(predicted, copies[1])):
            wrong.append(f"{kind}: it changes the arrays that it is given")
    return "; ".join(wrong)


def _drawn(dtype: str, labels: int, seed: int) -> Array:
    """[n] labels of a kind: indices, values, or sets of labels as bits."""
    generator = np.random.default_rng(seed)
    if dtype == "float64":
        return generator.uniform(0.0, 5.0, ROWS)
    return generator.integers(0, labels if dtype == "int64" else 1 << labels, ROWS).astype(dtype)


def _in_range(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    low, high = metric.range
    sides = {
        "of predictions": (gold, predicted),
        "of right predictions": (gold, gold),
        "of one prediction for all rows": (gold, np.full_like(predicted, predicted[0])),
        "where all gold labels are one": (np.full_like(gold, gold[0]), predicted),
        "of one row": (gold[:1], predicted[:1]),
    }
    for what, pair in sides.items():
        value = metric.score(*pair, positive)
        if not isinstance(value, float):
            return f"score {what} is {value!r}, of {type(value).__name__}; return a float"
        if not math.isfinite(value) or not low - TOLERANCE <= value <= high + TOLERANCE:
            return f"the value {what} is {value:g}; RANGE is {low:g} to {high:g}, and what is undefined is 0.0"
    return ""


def _best(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    right, other = metric.score(gold, gold, positive), metric.score(gold, predicted, positive)
    end = metric.range[0 if metric.lower_is_better else 1]
    if math.isfinite(end) and abs(right - end) > TOLERANCE:
        return f"right predictions have {right:g}, not the best of RANGE, {end:g}"
    if right <= other if not metric.lower_is_better else right >= other:
        return f"right predictions have {right:g}, half right ones {other:g}; is LOWER_IS_BETTER as it should be?"
    return ""


def _order(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    order = np.random.default_rng(2).permutation(ROWS)
    values = metric.score(gold, predicted, positive), metric.score(gold[order], predicted[order], positive)
    return "" if math.isclose(*values, abs_tol=TOLERANCE) else "{:g}, and {:g} in another order".format(*values)


def _weighted(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    """Two predictions at once under several weights, against the rows repeated."""
    assert metric.weighted is not None
    generator = np.random.default_rng(3)
    both = np.stack([predicted, generator.permutation(predicted)])
    drawn = generator.integers(0, ROWS, (RESAMPLES, ROWS))
    weights = np.stack([np.bincount(rows, minlength=ROWS) for rows in drawn]).astype(np.float64)
    values = np.asarray(metric.weighted(gold, both, weights, positive))
    if values.shape != (RESAMPLES, PREDICTIONS):
        return f"gives an array {list(values.shape)} for {RESAMPLES} resamples of {PREDICTIONS} predictions"
    for resample, rows in enumerate(drawn):
        for number, of in enumerate(both):
            one, wanted = values[resample, number], metric.score(gold[rows], of[rows], positive)
            if not math.isclose(one, wanted, rel_tol=1e-6, abs_tol=TOLERANCE):
                return f"a resample has {one:g}, and its rows one by one {wanted:g}"
    return ""


def _counts(metric: Metric, gold: Array, predicted: Array, positive: int | None) -> str:
    each = [metric.score(gold[row : row + 1], predicted[row : row + 1], positive) for row in range(ROWS)]
    values = metric.score(gold, predicted, positive), sum(each) / ROWS
    return "" if math.isclose(*values, abs_tol=TOLERANCE) else "{:g}; its rows {:g}".format(*values)


_LAWS = {
    "its values are numbers within RANGE": _in_range,
    "right predictions are the best": _best,
    "the order of the rows does not matter": _order,
}

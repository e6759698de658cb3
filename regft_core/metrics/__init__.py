"""Metrics: the rows of ``SHIPPED``, or files of a project (``catalogue.py`` finds them); no numpy is imported here.

A file is named by its metric. It declares ``KINDS``, the kinds of task that it fits (``("classification",)``), and
``RANGE``, smallest and largest possible value (``math.inf`` where there is none), and defines one of

``weighted(gold, predicted, weights, positive) -> [B, R]``
    the metric of many resamples at once (see ``Weighted``); a single run is a resample with all weights 1.
    Arrays [n] hold class indices (int64), values (float64) or sets of labels (uint64, a bit for each label);
    ``positive`` is the index of the positive label or None.
``score(gold, predicted, positive) -> float``
    the metric of one run. Every resample is then scored by itself, which is slow.

What is undefined because a side is constant is 0.0. All metrics are fractions or correlations, never percentages.
Optional: ``LOWER_IS_BETTER``; ``NEEDS_POSITIVE_LABEL`` of metrics that count one class (F1); ``FACTOR``, ``DIGITS`` and
``UNIT`` for how values are shown; ``BY_OFFSETS`` where offsets of the logits can raise the metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from types import ModuleType
from typing import Any

from regft_core.catalogue import KINDS, METRICS
from regft_core.errors import ConfigError, Problem
from regft_core.lazy import Array, np
from regft_core.metrics import _weighted
from regft_core.names import nearest

#: (gold [n], predicted [n], positive label or None) -> value
Score = Callable[[Array, Array, int | None], float]
#: (gold [n], predictions [R, n], weights [B, n] that sum to n per row, positive) -> values [B, R]
Weighted = Callable[[Array, Array, Array, int | None], Array]


@dataclass(frozen=True)
class Metric:
    """One metric; the fields from ``kinds`` on are the constants of a file, in capitals there."""

    name: str
    #: None: resamples are scored one by one.
    weighted: Weighted | None
    #: None: a run is a resample with all weights 1.
    of_one_run: Score | None
    kinds: tuple[str, ...]
    range: tuple[float, float]
    lower_is_better: bool = False
    needs_positive_label: bool = False
    factor: float = 100.0
    digits: int = 1
    unit: str = "points"
    by_offsets: bool = False

    @property
    def largest_difference(self) -> float:
        return self.range[1] - self.range[0]

    def score(self, gold: Array, predicted: Array, positive: int | None) -> float:
        """The metric of one run, of gold labels and predictions [n]."""
        if self.of_one_run is not None:
            return self.of_one_run(gold, predicted, positive)
        assert self.weighted is not None
        return float(self.weighted(gold, predicted[None], np.ones((1, len(gold))), positive)[0, 0])

    def resampled(self, gold: Array, predicted: Array, weights: Array, positive: int | None) -> Array:
        """[B, R]: the metric of predictions [R, n] under each of ``weights`` [B, n], which agrees with ``score``."""
        if self.weighted is not None:
            return self.weighted(gold, predicted, weights, positive)
        draws = (np.repeat(np.arange(len(gold)), counts.astype(np.int64)) for counts in weights)
        return np.array([[self.score(gold[drawn], row[drawn], positive) for row in predicted] for drawn in draws])


_DECLARED = tuple(field.name.upper() for field in fields(Metric)[3:])
_CLASSES, _ORDER, _VALUES = ("classification",), ("ordinal",), ("regression",)
_SHARE, _CORRELATION, _ERROR = (0.0, 1.0), (-1.0, 1.0), (0.0, math.inf)
#: Of errors, which are not shown times 100.
_AS_IT_IS: dict[str, Any] = {"lower_is_better": True, "factor": 1.0}
SHIPPED = {
    metric.name: metric
    for metric in (
        Metric("accuracy", _weighted.accuracy, None, ("classification", "multi_label"), _SHARE),
        Metric("accuracy_f1", _weighted.accuracy_f1, None, _CLASSES, _SHARE, needs_positive_label=True),
        Metric("f1", _weighted.f1, None, _CLASSES, _SHARE, needs_positive_label=True, by_offsets=True),
        Metric("f1_macro", _weighted.f1_macro, None, ("classification", "multi_label"), _SHARE, by_offsets=True),
        Metric("f1_micro", _weighted.f1_micro, None, ("multi_label",), _SHARE, by_offsets=True),
        Metric("matthews", _weighted.matthews, None, _CLASSES, _CORRELATION, by_offsets=True),
        Metric("kappa_quadratic", _weighted.kappa_quadratic, None, _ORDER, _CORRELATION),
        Metric("mae", _weighted.mae, None, _ORDER, _ERROR, digits=3, unit="labels", **_AS_IT_IS),
        Metric("mse", _weighted.mse, None, _VALUES, _ERROR, digits=4, unit="squared error", **_AS_IT_IS),
        Metric("pearson", _weighted.pearson, None, _VALUES, _CORRELATION),
        Metric("pearson_spearman", _weighted.pearson_spearman, None, _VALUES, _CORRELATION),
        Metric("r2", _weighted.r2, None, _VALUES, (-math.inf, 1.0)),
        Metric("spearman", _weighted.spearman, None, _VALUES, _CORRELATION),
    )
}


def names(kind: str | None = None) -> tuple[str, ...]:
    """Return the names of all metrics, or of those that fit a task's ``kind``; raises ValueError for an unknown one."""
    if kind is None:
        return METRICS.names()
    KINDS.check(kind)
    return tuple(name for name in METRICS.names() if kind in _kinds(name))


def _kinds(name: str) -> tuple[str, ...]:
    """The kinds that a metric fits; none for a broken file of the project, whose use says what is wrong."""
    try:
        return find(name).kinds
    except ConfigError:
        return ()


def find(name: str) -> Metric:
    """Return the metric ``name``. Raises ValueError where there is none, ConfigError where its file is not one."""
    found = METRICS.find(name)
    return found if isinstance(found, Metric) else _read(name, found)


def higher_is_better(name: str) -> bool:
    return not find(name).lower_is_better


@lru_cache(maxsize=256)
def _read(name: str, module: ModuleType) -> Metric:
    """Check what the file of one metric declares; raises ConfigError with everything that is wrong."""
    constants = {key: value for key, value in vars(module).items() if key.isupper() and not key.startswith("_")}
    weighted: Weighted | None = getattr(module, "weighted", None)
    score: Score | None = getattr(module, "score", None)
    wrong = [] if score or weighted else ["score(gold, predicted, positive) is missing"]
    for key in constants.keys() - {*_DECLARED}:  # a file may have constants of its own, but no misspelling
        if near := nearest(key, _DECLARED):
            wrong.append(f"{key} is not a declaration; did you mean {near}?")
    kinds, bounds = constants.get("KINDS"), constants.get("RANGE")
    if not isinstance(kinds, tuple) or not kinds or set(kinds) - set(KINDS.names()):
        wrong.append(f"KINDS is {kinds!r}; give a tuple of some of {', '.join(KINDS.names())}")
    if not isinstance(bounds, tuple) or len(bounds) != 2 or not bounds[0] < bounds[1]:
        wrong.append(f"RANGE is {bounds!r}; give (smallest, largest), with math.inf where there is none")
    if wrong:
        hint = "regft_core/metrics/__init__.py says what a metric's file declares"
        raise ConfigError([Problem("bad-metric-file", str(module.__file__), 0, "", message, hint) for message in wrong])
    return Metric(name, weighted, score, **{k.lower(): v for k, v in constants.items() if k in _DECLARED})

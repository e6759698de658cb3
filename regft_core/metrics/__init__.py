"""Metrics, one file each, found by their file's name; importing this package needs no numpy.

A metric is a file of this folder. It declares, in capitals,

``KINDS``
    the kinds of task that it fits, of the files of ``regft_core/kinds``: ``("classification",)``.
``RANGE``
    smallest and largest possible value, ``math.inf`` where there is none; intervals are cut there.

and defines one or both of

``score(gold, predicted, positive) -> float`` of one run
    arrays [n] of class indices (int64), values (float64) or sets of labels (uint64, a bit for each label);
    ``positive`` is the index of the positive label or None.
``weighted(gold, predicted, weights, positive) -> [B, R]``
    the metric of many resamples at once (see ``Weighted``). Without it every resample is scored by itself, which is
    slow; without ``score`` it scores a single run, too.

What is undefined because a side is constant is 0.0: no evidence of skill. All metrics are fractions or correlations,
never percentages. Optional: ``LOWER_IS_BETTER``; ``NEEDS_POSITIVE_LABEL`` of metrics that count one class (F1);
``FACTOR``, ``DIGITS`` and ``UNIT`` for how values are shown; ``COUNTS_EXAMPLES`` for a mean over examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING

from regft_core.catalogue import KINDS, METRICS
from regft_core.errors import ConfigError, Problem
from regft_core.lazy import np
from regft_core.names import nearest

if TYPE_CHECKING:
    from regft_core.metrics._sums import Array

#: (gold [n], predicted [n], positive label or None) -> value
Score = Callable[["Array", "Array", "int | None"], float]
#: (gold [n], predictions [R, n], weights [B, n] that sum to n per row, positive) -> values [B, R]
Weighted = Callable[["Array", "Array", "Array", "int | None"], "Array"]

_REQUIRED = ("KINDS", "RANGE")
_OPTIONAL = ("LOWER_IS_BETTER", "NEEDS_POSITIVE_LABEL", "FACTOR", "DIGITS", "UNIT", "COUNTS_EXAMPLES")


@dataclass(frozen=True)
class Metric:
    """One metric, as its file declares it."""

    name: str
    kinds: tuple[str, ...]
    lower_is_better: bool
    needs_positive_label: bool
    #: Smallest and largest possible value.
    range: tuple[float, float]
    score: Score
    #: None: resamples are scored one by one.
    weighted: Weighted | None
    #: What values are multiplied by when shown, and the digits after the point.
    factor: float
    digits: int
    #: Word after a shown difference.
    unit: str
    #: Whether a value is the share of examples that are right, so that a difference is a number of them.
    counts_examples: bool

    @property
    def largest_difference(self) -> float:
        """How far two values can be apart; infinite without bounds."""
        return self.range[1] - self.range[0]


def names(kind: str | None = None) -> tuple[str, ...]:
    """Return the names of all metrics, or of those that fit a task's ``kind``.

    Raises:
        ValueError: there is no such kind.
        ConfigError: a metric's file is not one.
    """
    if kind is None:
        return METRICS.names()
    KINDS.check(kind)
    return tuple(name for name in METRICS.names() if kind in _kinds(name))


def _kinds(name: str) -> tuple[str, ...]:
    """The kinds that a metric fits; none for a broken file of the project, whose use says what is wrong."""
    try:
        return find(name).kinds
    except ConfigError:
        if METRICS.is_shipped(name):
            raise
        return ()


def find(name: str) -> Metric:
    """Return the metric ``name``.

    Raises:
        ValueError: there is no such metric.
        ConfigError: its file is not one.
    """
    return _read(name, METRICS.find(name))


def higher_is_better(name: str) -> bool:
    """Return whether a larger value of metric ``name`` is the better one; raises as ``find``."""
    return not find(name).lower_is_better


@lru_cache(maxsize=256)
def _read(name: str, module: ModuleType) -> Metric:
    """Check what the file of one metric declares; raises ConfigError with everything that is wrong."""
    given = {key: value for key, value in vars(module).items() if key.isupper() and not key.startswith("_")}
    wrong = [f"{key} is missing" for key in _REQUIRED if key not in given]
    weighted: Weighted | None = getattr(module, "weighted", None)
    score: Score | None = getattr(module, "score", None)
    if score is None and weighted is not None:
        score = partial(_of_one_run, weighted)
    if score is None:
        wrong.append("score(gold, predicted, positive) is missing")
    for key in given.keys() - {*_REQUIRED, *_OPTIONAL}:  # a file may have constants of its own, but no misspelling
        if near := nearest(key, _REQUIRED + _OPTIONAL):
            wrong.append(f"{key} is not a declaration; did you mean {near}?")
    kinds = given.get("KINDS", ())
    if "KINDS" in given and (not isinstance(kinds, tuple) or not kinds or set(kinds) - set(KINDS.names())):
        wrong.append(f"KINDS is {kinds!r}; give a tuple of some of {', '.join(KINDS.names())}")
    bounds = given.get("RANGE", (0.0, 1.0))
    if not isinstance(bounds, tuple) or len(bounds) != 2 or not bounds[0] < bounds[1]:
        wrong.append(f"RANGE is {bounds!r}; give (smallest, largest), with math.inf where there is none")
    if score is None or wrong:
        hint = "regft_core/metrics/__init__.py says what a metric's file declares"
        raise ConfigError([Problem("bad-metric-file", str(module.__file__), 0, "", message, hint) for message in wrong])
    return Metric(
        name=name,
        kinds=kinds,
        lower_is_better=bool(given.get("LOWER_IS_BETTER")),
        needs_positive_label=bool(given.get("NEEDS_POSITIVE_LABEL")),
        range=(float(bounds[0]), float(bounds[1])),
        score=score,
        weighted=weighted,
        factor=float(given.get("FACTOR", 100.0)),
        digits=int(given.get("DIGITS", 1)),
        unit=str(given.get("UNIT", "points")),
        counts_examples=bool(given.get("COUNTS_EXAMPLES", False)),
    )


def _of_one_run(weighted: Weighted, gold: Array, predicted: Array, positive: int | None) -> float:
    return float(weighted(gold, predicted[None], np.ones((1, len(gold))), positive)[0, 0])

"""Metrics, one file each, found by their file's name; importing this package needs no numpy.

A metric is a file of this folder. It declares, in capitals,

``KINDS``
    the kinds of task that it fits, of the files of ``regft_core/kinds``: ``("classification",)``.
``RANGE``
    smallest and largest possible value, ``math.inf`` where there is none; intervals are cut there.

and defines one of

``weighted(gold, predicted, weights, positive) -> [B, R]``
    the metric of many resamples at once (see ``Weighted``); a single run is a resample with all weights 1.
    Arrays [n] hold class indices (int64), values (float64) or sets of labels (uint64, a bit for each label);
    ``positive`` is the index of the positive label or None.
``score(gold, predicted, positive) -> float``
    the metric of one run. Every resample is then scored by itself, which is slow.

What is undefined because a side is constant is 0.0: no evidence of skill. All metrics are fractions or correlations,
never percentages. Optional: ``LOWER_IS_BETTER``; ``NEEDS_POSITIVE_LABEL`` of metrics that count one class (F1);
``FACTOR``, ``DIGITS`` and ``UNIT`` for how values are shown; ``COUNTS_EXAMPLES`` for a mean over examples;
``BY_OFFSETS`` where the most probable label is not the best decision, so that offsets of the logits raise the metric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from types import ModuleType

from regft_core.catalogue import KINDS, METRICS
from regft_core.errors import ConfigError, Problem
from regft_core.lazy import Array, np
from regft_core.names import nearest

#: (gold [n], predicted [n], positive label or None) -> value
Score = Callable[[Array, Array, int | None], float]
#: (gold [n], predictions [R, n], weights [B, n] that sum to n per row, positive) -> values [B, R]
Weighted = Callable[[Array, Array, Array, int | None], Array]


@dataclass(frozen=True)
class Metric:
    """One metric, as its file declares it: the fields from ``kinds`` on are its constants, in capitals there."""

    name: str
    score: Score
    #: None: resamples are scored one by one.
    weighted: Weighted | None
    kinds: tuple[str, ...]
    #: Smallest and largest possible value.
    range: tuple[float, float]
    lower_is_better: bool = False
    needs_positive_label: bool = False
    #: What values are multiplied by when shown, and the digits after the point.
    factor: float = 100.0
    digits: int = 1
    #: Word after a shown difference.
    unit: str = "points"
    #: Whether a value is the share of examples that are right, so that a difference is a number of them.
    counts_examples: bool = False
    #: Whether decisions by offset logits can be better than the most probable label; needs ``weighted``.
    by_offsets: bool = False

    @property
    def largest_difference(self) -> float:
        """How far two values can be apart; infinite without bounds."""
        return self.range[1] - self.range[0]


_DECLARED = tuple(field.name.upper() for field in fields(Metric)[3:])


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
    constants = {key: value for key, value in vars(module).items() if key.isupper() and not key.startswith("_")}
    weighted: Weighted | None = getattr(module, "weighted", None)
    score: Score | None = getattr(module, "score", partial(_of_one_run, weighted) if weighted else None)
    wrong = [] if score else ["score(gold, predicted, positive) is missing"]
    for key in constants.keys() - {*_DECLARED}:  # a file may have constants of its own, but no misspelling
        if near := nearest(key, _DECLARED):
            wrong.append(f"{key} is not a declaration; did you mean {near}?")
    kinds, bounds = constants.get("KINDS"), constants.get("RANGE")
    if not isinstance(kinds, tuple) or not kinds or set(kinds) - set(KINDS.names()):
        wrong.append(f"KINDS is {kinds!r}; give a tuple of some of {', '.join(KINDS.names())}")
    if not isinstance(bounds, tuple) or len(bounds) != 2 or not bounds[0] < bounds[1]:
        wrong.append(f"RANGE is {bounds!r}; give (smallest, largest), with math.inf where there is none")
    if score is None or wrong:
        hint = "regft_core/metrics/__init__.py says what a metric's file declares"
        raise ConfigError([Problem("bad-metric-file", str(module.__file__), 0, "", message, hint) for message in wrong])
    return Metric(name, score, weighted, **{k.lower(): v for k, v in constants.items() if k in _DECLARED})


def _of_one_run(weighted: Weighted, gold: Array, predicted: Array, positive: int | None) -> float:
    return float(weighted(gold, predicted[None], np.ones((1, len(gold))), positive)[0, 0])

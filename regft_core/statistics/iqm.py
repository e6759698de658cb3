"""Robust aggregates over seeds and tasks (Agarwal et al., "Deep RL at the edge of the statistical precipice", 2021).

Resampling is stratified: every task keeps its number of seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regft_core.rng import derive


@dataclass(frozen=True)
class Interval:
    """A value with its percentile bootstrap interval."""

    value: float
    low: float
    high: float


def interquartile_mean(
    scores: Mapping[str, Sequence[float]], *, samples: int = 10_000, confidence: float = 0.95, rng_seed: int = 0
) -> Interval:
    """Return the mean of the middle half of all runs' scores, ``scores`` being task -> one score per seed.

    When the number of runs is not a multiple of four, the runs at the quartiles count in part (no
    rounding, unlike a trimmed mean that drops whole runs). Failed runs belong into the failure
    rate, collapsed ones into the scores.

    Raises:
        ValueError: no task, or a task without scores.
    """
    strata = _strata(scores)
    weights = _middle_half(sum(map(len, strata)))
    rng = np.random.default_rng(derive(rng_seed, "statistics.iqm"))
    drawn = np.concatenate([_draw(rng, values, samples) for values in strata], axis=1)
    drawn.sort(axis=1)
    low, high = np.quantile(drawn @ weights, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(np.sort(np.concatenate(strata)) @ weights), float(low), float(high))


def probability_of_improvement(
    a: Mapping[str, Sequence[float]],
    b: Mapping[str, Sequence[float]],
    *,
    samples: int = 2_000,
    confidence: float = 0.95,
    rng_seed: int = 0,
) -> Interval:
    """Return the chance that a random run of ``a`` scores above one of ``b`` on a random task (a tie counts half).

    Both map the same tasks to one score per seed (larger is better); runs are not paired here: it
    answers what to expect from one new run of each.

    Raises:
        ValueError: the tasks differ, or one has no scores.
    """
    if set(a) != set(b):
        raise ValueError(f"tasks differ between the arms: {sorted(set(a) ^ set(b))}")
    tasks = sorted(a)
    first, second = _strata({t: a[t] for t in tasks}), _strata({t: b[t] for t in tasks})
    rng = np.random.default_rng(derive(rng_seed, "statistics.improvement"))
    total, observed = np.zeros(samples), 0.0
    for x, y in zip(first, second):
        observed += float(_wins(x[None], y[None])[0])
        total += _wins(_draw(rng, x, samples), _draw(rng, y, samples))
    low, high = np.quantile(total / len(tasks), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(observed / len(tasks), float(low), float(high))


def _strata(scores: Mapping[str, Sequence[float]]) -> list[npt.NDArray[np.float64]]:
    empty = [task for task, values in scores.items() if len(values) == 0]
    if empty or not scores:
        raise ValueError(f"no scores for {', '.join(empty) or 'any task'}")
    return [np.asarray(values, dtype=np.float64) for values in scores.values()]


def _draw(rng: np.random.Generator, values: npt.NDArray[np.float64], samples: int) -> npt.NDArray[np.float64]:
    return values[rng.integers(len(values), size=(samples, len(values)))]


def _wins(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return [B]: the share of pairs of x [B, n] and y [B, m] that x wins."""
    difference = x[:, :, None] - y[:, None, :]
    return ((difference > 0) + (difference == 0) / 2).mean(axis=(1, 2))


def _middle_half(n: int) -> npt.NDArray[np.float64]:
    """Return [n] weights of sorted scores: each covers 1/n of the distribution, cut to [1/4, 3/4]."""
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    weights = np.diff(edges) * 2
    assert math.isclose(weights.sum(), 1.0)
    return weights

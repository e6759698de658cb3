"""Interquartile mean over seeds and tasks (Agarwal et al., "Deep RL at the edge of the statistical precipice", 2021).

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
    """A value with its interval."""

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


def _strata(scores: Mapping[str, Sequence[float]]) -> list[npt.NDArray[np.float64]]:
    empty = [task for task, values in scores.items() if len(values) == 0]
    if empty or not scores:
        raise ValueError(f"no scores for {', '.join(empty) or 'any task'}")
    return [np.asarray(values, dtype=np.float64) for values in scores.values()]


def _draw(rng: np.random.Generator, values: npt.NDArray[np.float64], samples: int) -> npt.NDArray[np.float64]:
    return values[rng.integers(len(values), size=(samples, len(values)))]


def _middle_half(n: int) -> npt.NDArray[np.float64]:
    """Return [n] weights of sorted scores: each covers 1/n of the distribution, cut to [1/4, 3/4]."""
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    weights = np.diff(edges) * 2
    assert math.isclose(weights.sum(), 1.0)
    return weights

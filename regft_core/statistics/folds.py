"""Intervals where each seed is judged on rows of its own: folds, repeats of folds, and groups of rows.

The score of a method is the mean over seeds of the score on the seed's rows, as in scikit-learn's
``cross_val_score``. It varies for two reasons, estimated apart and added:

- *Rows.* One resample draws rows with replacement (groups, where rows have them: the cluster bootstrap), the same for
  all seeds and both methods of a difference. A seed's deviation counts by the share of its rows that were drawn, so
  that repeats, which judge the same rows again, share this part. It is stretched by Student's t for few groups,
  counted as Kish's effective number (Survey Sampling, 1965, section 8.2).
- *Models.* Scores of folds differ by more than their rows explain, since each has a model of its own. That excess,
  s2 of the seeds' scores minus the mean variance that the rows give them, is resampled over seeds and stretched as
  in ``bootstrap``. It does not shrink with repeats, whose models come from the same rows as those of the first.

Models of one repeat share most training rows. The covariance that this brings cannot be estimated (Bengio and
Grandvalet, JMLR 2004), and is left out; ``benchmarks/fold_coverage.py`` shows what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.statistics.bootstrap import Estimate, estimated, stretch
from regft_core.statistics.resampling import Array, WeightedMetric, example_weights, seed_weights, weighted_metric


@dataclass(frozen=True)
class Apart:
    """Scores of runs on rows of their own.

    Attributes:
        observed: [R] the metric of each run on its rows.
        values: [samples, R] the same on the drawn ones of its rows; NaN where none was drawn.
        shares: [samples, R] drawn rows of each run, relative to its rows.
        clusters: effective number of groups, or of rows.
    """

    observed: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]
    clusters: float


def resample_apart(
    predictions: Sequence[Array],
    places: Sequence[Array],
    labels: Array,
    groups: Array | None,
    metric: str | WeightedMetric,
    *,
    samples: int,
    seed: int,
    positive_label_index: int | None = None,
) -> Apart:
    """Score runs, each on the rows ``places`` [n_r] of ``labels`` [n], and again on resampled rows.

    Args:
        predictions: [n_r] of each run.
        groups: [n] index of each row's group from 0; None: each row is its own.

    Raises:
        ValueError: a run has more or fewer predictions than rows, or the metric is unknown.
    """
    if wrong := [r for r, (own, at) in enumerate(zip(predictions, places, strict=True)) if len(own) != len(at)]:
        raise ValueError(f"run {wrong[0]} has {len(predictions[wrong[0]])} predictions of {len(places[wrong[0]])} rows")
    weighted = weighted_metric(metric, positive_label_index) if isinstance(metric, str) else metric
    # Metrics want weights that sum to the rows; what resamples row by row wants whole numbers.
    whole = isinstance(metric, str) and metrics.find(metric).weighted is None
    unit = np.arange(len(labels)) if groups is None else np.asarray(groups)
    sizes = np.bincount(unit)
    counts = example_weights(len(sizes), samples, seed)
    observed, values, shares = np.empty(len(places)), *np.empty((2, samples, len(places)))
    for run, (own, at) in enumerate(zip(predictions, places, strict=True)):
        weights = counts[:, unit[at]].astype(np.float64)
        drawn = weights.sum(axis=1)
        shares[:, run] = drawn / len(at)
        if not whole:
            weights *= (len(at) / np.maximum(drawn, 1))[:, None]
        gold, row = labels[at], np.asarray(own)[None]
        observed[run] = weighted(gold, row, np.ones((1, len(at))))[0, 0]
        some = drawn > 0
        values[~some, run] = math.nan
        if some.any():
            values[some, run] = weighted(gold, row, weights[some])[:, 0]
    return Apart(observed, values, shares, float(sizes.sum() ** 2 / (sizes**2).sum()))


def over_folds(
    seeds: list[int],
    excluded: list[int],
    observed: Array,
    values: Array,
    shares: Array,
    clusters: float,
    repeats: float,
    confidence: float,
    rng_seed: int,
) -> Estimate:
    """The mean of ``observed`` [S] over seeds with its interval; arrays as in ``Apart``, of these seeds.

    ``repeats``: how often each row was judged.
    """
    common: dict[str, Any] = {"confidence": confidence, "seeds": tuple(seeds), "excluded": tuple(excluded)}
    n, samples = len(seeds), len(values)
    if n == 0:
        return estimated(observed, math.nan, np.full(samples, math.nan), **common)
    mean = float(observed.mean())
    moved = np.where(shares > 0, shares * (values - mean), 0.0)
    by_rows = moved.mean(axis=1)
    by_rows = few(clusters, confidence) * (by_rows - by_rows.mean())
    replicates = mean + by_rows
    if n > 1:
        spread, rows = float(np.var(observed, ddof=1)), float(np.var(moved, axis=0).mean())
        models = math.sqrt(max(0.0, 1 - rows / spread)) if spread > 0 else 0.0
        weights = seed_weights(n, samples, rng_seed) - 1 / n
        replicates = replicates + stretch(n, confidence) * math.sqrt(repeats) * models * (weights @ observed)
    return estimated(observed, float(np.std(by_rows, ddof=1)), replicates, **common)


def few(clusters: float, confidence: float) -> float:
    """How much wider than the plain bootstrap the spread of so many groups is; about 1 for hundreds."""
    from scipy.stats import t

    if clusters <= 1:
        return math.nan
    upper = (1 + confidence) / 2
    return math.sqrt(clusters / (clusters - 1)) * float(t.ppf(upper, clusters - 1)) / NormalDist().inv_cdf(upper)

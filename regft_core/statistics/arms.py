"""Many arms on one set: their metric is resampled once, then any arm or pair of arms is an ``Estimate``.

A report of many methods pays for the resamples once, not once per comparison, and what is compared is paired.

Where each seed is evaluated on rows of its own (folds, repeats of folds) or rows have groups:

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
Grandvalet, JMLR 2004). With several repeats of the folds, whose intervals would be too short, the part of the rows is
therefore as large as Nadeau and Bengio have it (Machine Learning 2003): (1 / J + test rows / training rows) s2 for J
runs, in place of s2 / folds. ``benchmarks/statistics.md`` has the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.statistics.bootstrap import (
    Array,
    Estimate,
    at_least_normal,
    estimated,
    example_weights,
    resampled_metric,
    seed_weights,
    stretch,
    two_level,
)
from regft_core.statistics.confidence import effective
from regft_core.statistics.verdict import Sample, overlap


class Arms:
    """The resampled metric of every seed of every arm.

    Args:
        arms: name -> seed -> predictions [n], for the examples whose gold ``labels`` are [n], in one order.
        expected_seeds: seeds that an arm should have; what it lacks is listed as excluded.
        judged: seed -> rows of ``labels`` that it was evaluated on, its predictions in this order; None: all rows.
        groups: [n] index of each row's group from 0, resampled as a whole; None: rows are resampled.
        metric: its name.
        samples: resamples of the bootstrap.
        positive_label_index: what F1 counts.
    """

    def __init__(
        self,
        arms: Mapping[str, Mapping[int, npt.ArrayLike]],
        labels: npt.ArrayLike,
        metric: str,
        *,
        samples: int = 10_000,
        confidence: float = 0.95,
        rng_seed: int = 0,
        positive_label_index: int | None = None,
        expected_seeds: Sequence[int] = (),
        judged: Mapping[int, npt.NDArray[np.int64]] | None = None,
        groups: npt.NDArray[np.int64] | None = None,
    ) -> None:
        places = [(name, seed) for name, arm in arms.items() for seed in sorted(arm)]
        rows, gold = [np.asarray(arms[name][seed]) for name, seed in places], np.asarray(labels)
        common: Any = {"samples": samples, "seed": rng_seed, "positive_label_index": positive_label_index}
        self.count = len(gold)
        self._rows, self._judged = rows, judged
        self._apart: Apart | None = None
        if judged is not None or groups is not None:
            own = [np.arange(len(gold)) if judged is None else judged[seed] for _, seed in places]
            self._apart = resample_apart(rows, own, gold, groups, metric, **common)
            self._observed, self._values = self._apart.observed, self._apart.values
        else:
            self._observed, self._values = resampled_metric(metric, gold, rows, **common)
        self._columns: dict[str, dict[int, int]] = {name: {} for name in arms}
        for column, (name, seed) in enumerate(places):
            self._columns[name][seed] = column
        self._expected, self._confidence, self._rng_seed = set(expected_seeds), confidence, rng_seed

    def one(self, name: str) -> Estimate:
        """The mean of the metric over the seeds of one arm.

        Intervals of two arms may overlap although their difference is clear: compare with :meth:`difference`, never
        by looking at two of these.
        """
        seeds = sorted(self._columns[name])
        columns = [self._columns[name][seed] for seed in seeds]
        return self._combine(seeds, self._expected, columns, self._observed[columns], self._values[:, columns])

    def table(self, names: Sequence[str]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return ([k, S] scores, [samples, k, S] over resampled examples) of ``names`` on the seeds that all have."""
        seeds = sorted(set.intersection(*(set(self._columns[name]) for name in names)))
        columns = [[self._columns[name][seed] for seed in seeds] for name in names]
        observed, values = self._observed[columns], self._values[:, columns]
        if self._apart is not None:
            wider = self._overlap(seeds) * stretch(self._apart.clusters, self._confidence)
            values = observed + wider * self._apart.moved(columns, values - observed)
        return observed, values

    def _pair(self, a: str, b: str) -> tuple[list[int], list[int], Array, Array]:
        """Common seeds, the columns of ``a``, and metric(a) - metric(b): [S] observed, [samples, S] resampled."""
        seeds = sorted(self._columns[a].keys() & self._columns[b].keys())
        left, right = ([self._columns[name][seed] for seed in seeds] for name in (a, b))
        return seeds, left, self._observed[left] - self._observed[right], self._values[:, left] - self._values[:, right]

    def difference(self, a: str, b: str, confidence: float | None = None) -> Estimate:
        """The mean of metric(a) - metric(b), also where lower is better, over the seeds that both arms have.

        Seeds that an arm lacks, of the other's or the expected ones, are listed as excluded.
        """
        seeds, left, observed, values = self._pair(a, b)
        every = self._columns[a].keys() | self._columns[b].keys() | self._expected
        return self._combine(seeds, every, left, observed, values, confidence)

    def sample(self, a: str, b: str) -> Sample:
        estimate, (seeds, left, observed, values) = self.difference(a, b), self._pair(a, b)
        clusters, repeats, folds = float(len(self._rows[0]) if self._rows else 0), 1.0, None
        if self._apart is not None:
            clusters = self._apart.clusters
            values = observed + stretch(clusters, estimate.confidence) * (values - observed)
        if self._judged is not None and self._apart is not None and seeds:
            # Rows of its own for each seed: all that rows do to a seed is its own.
            repeats = self._repeats(seeds)
            folds, moved = len(seeds) / repeats, self._apart.moved(left, values - observed.mean())
            rows, inner = self._overlap(seeds) * moved.mean(axis=1), float(np.var(moved, axis=0).mean())
        else:
            rows = values.mean(axis=1) if seeds else np.zeros(len(values))
            inner = float(np.var(values - observed, axis=1, ddof=1).mean()) if len(seeds) > 1 else 0.0
        bounds = (estimate.low, estimate.high)
        return Sample(observed, rows - rows.mean(), inner, clusters, repeats, bounds, self.identical(a, b), folds)

    def _repeats(self, seeds: Sequence[int]) -> float:
        assert self._judged is not None
        places = np.concatenate([self._judged[seed] for seed in seeds]) if seeds else np.empty(0)
        return len(places) / max(1, len(np.unique(places)))

    def _overlap(self, seeds: Sequence[int]) -> float:
        """``overlap`` of these seeds' folds; 1 where all seeds are evaluated on the same rows."""
        repeats = self._repeats(seeds) if self._judged is not None else 1.0
        return overlap(len(seeds) / max(1.0, repeats), repeats)

    def still(self, name: str) -> bool:
        """Whether several seeds of an arm, evaluated on the same rows, gave the same predictions."""
        rows = [self._rows[column] for column in self._columns[name].values()]
        return self._judged is None and len(rows) > 1 and all(np.array_equal(rows[0], row) for row in rows[1:])

    def identical(self, a: str, b: str) -> bool:
        """Whether both arms predict the same for every example of every seed of both; False without such a seed."""
        first, second = self._columns[a], self._columns[b]
        seeds = set(first) & set(second)
        return bool(seeds) and all(np.array_equal(self._rows[first[s]], self._rows[second[s]]) for s in seeds)

    def _combine(
        self, seeds: list[int], every: Iterable[int], columns: list[int], observed: Array, values: Array,
        confidence: float | None = None,
    ) -> Estimate:  # fmt: skip
        """The mean over ``seeds``; those of ``every`` that are missing are excluded."""
        level, excluded = self._confidence if confidence is None else confidence, sorted({*every} - {*seeds})
        if self._apart is None or not seeds:
            return two_level(seeds, excluded, observed, values, level, self._rng_seed)
        wider = stretch(self._apart.clusters, level)
        if self._judged is None:  # all seeds are evaluated on the same groups
            values = observed + wider * (values - observed)
            return two_level(seeds, excluded, observed, values, level, self._rng_seed)
        n, mean = len(seeds), float(observed.mean())
        moved = self._apart.moved(columns, values - mean)
        by_rows = moved.mean(axis=1)
        by_rows = self._overlap(seeds) * wider * (by_rows - by_rows.mean())
        replicates = mean + by_rows
        if n > 1:
            spread, rows = float(np.var(observed, ddof=1)), float(np.var(moved, axis=0).mean())
            models = math.sqrt(max(0.0, 1 - rows / spread)) if spread > 0 else 0.0
            weights = seed_weights(n, len(values), self._rng_seed) - 1 / n
            repeats = math.sqrt(self._repeats(seeds))
            replicates = replicates + stretch(n, level) * repeats * models * (weights @ observed)
        common: dict[str, Any] = {"confidence": level, "seeds": tuple(seeds), "excluded": tuple(excluded)}
        return estimated(observed, float(np.std(by_rows, ddof=1)), replicates, **common)


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

    def moved(self, runs: Any, deviations: Array) -> Array:
        """[samples, ...] deviations of ``runs``, each by the share of its rows that were drawn."""
        shares = self.shares[:, runs]
        return np.where(shares > 0, shares * deviations, 0.0)


def resample_apart(
    predictions: Sequence[Array],
    places: Sequence[Array],
    labels: Array,
    groups: Array | None,
    metric: str,
    *,
    samples: int,
    seed: int,
    positive_label_index: int | None = None,
) -> Apart:
    """Score runs, each on the rows ``places`` [n_r] of ``labels`` [n], and again on resampled rows.

    Args:
        predictions: [n_r] of each run.
        groups: [n] index of each row's group from 0; None: each row is its own.
    """
    found, positive = metrics.find(metric), positive_label_index
    # Metrics want weights that sum to the rows; what resamples row by row wants whole numbers.
    whole = found.weighted is None
    unit = np.arange(len(labels)) if groups is None else np.asarray(groups)
    counts = example_weights(int(unit.max()) + 1, samples, seed)
    observed, values, shares = np.empty(len(places)), *np.empty((2, samples, len(places)))
    for run, (own, at) in enumerate(zip(predictions, places, strict=True)):
        weights = counts[:, unit[at]].astype(np.float64)
        drawn = weights.sum(axis=1)
        shares[:, run] = drawn / len(at)
        if not whole:
            weights *= (len(at) / np.maximum(drawn, 1))[:, None]
        gold, row = labels[at], np.asarray(own)[None]
        observed[run] = found.resampled(gold, row, np.ones((1, len(at))), positive)[0, 0]
        some = drawn > 0
        values[~some, run] = math.nan
        if some.any():
            values[some, run] = found.resampled(gold, row, weights[some], positive)[:, 0]
    return Apart(observed, values, shares, effective(unit))


# Possible ranks come from simultaneous intervals of all paired differences (Mogstad, Romano, Shaikh and Wilhelm, Review
# of Economic Studies 2024): an arm that is worse than w others beyond their intervals ranks no better than 1 + w, and
# one that is better than v of k arms no worse than k - v. A bootstrap of ranks fails among arms that are alike (Hall
# and Miller, Annals of Statistics 2009).


class RankSet(NamedTuple):
    """The best and the worst rank that the data leave possible; 1 is best, ranks of equal means included."""

    best: int
    worst: int


def rank_sets(
    arms: Arms, names: Sequence[str], *, confidence: float, higher_is_better: bool = True, sets: int = 1
) -> dict[str, RankSet]:
    """Return the possible ranks of every arm of ``names`` among them.

    Each arm's set holds with ``confidence``, together with its sets of ``sets`` - 1 other tasks (Bonferroni over its
    comparisons in all of them); the sets of all arms together do not. Intervals of the replicates, which
    Student's t has stretched, are ``at_least_normal``. Arms that share fewer than two seeds cannot be told apart.
    """
    level = 1 - (1 - confidence) / max(1, sets * (len(names) - 1))
    behind, ahead = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for pair in combinations(names, 2):
        estimate = arms.difference(*pair, confidence=level)
        low, high = at_least_normal(estimate.low, estimate.high, estimate.mean, estimate.replicates, level)
        if estimate.n > 1 and (low > 0 or high < 0):
            better, worse = pair if (low > 0) == higher_is_better else reversed(pair)
            ahead[better] += 1
            behind[worse] += 1
    return {name: RankSet(1 + behind[name], len(names) - ahead[name]) for name in names}

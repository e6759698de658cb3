"""Many arms on one set: their metric is resampled once, then any arm or pair of arms is an ``Estimate``.

A report of many methods pays for the resamples once, not once per comparison, and what is compared is paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from regft_core.statistics.bootstrap import Estimate, resample_rows, two_level
from regft_core.statistics.folds import Apart, few, over_folds, resample_apart
from regft_core.statistics.resampling import WeightedMetric
from regft_core.statistics.verdict import Sample


class Arms:
    """The resampled metric of every seed of every arm.

    Args:
        arms: name -> seed -> predictions [n], for the examples whose gold ``labels`` are [n], in one order.
        expected_seeds: seeds that an arm should have; what it lacks is listed as excluded.
        judged: seed -> rows of ``labels`` that it was judged on, its predictions in this order; None: all rows.
        groups: [n] index of each row's group from 0, resampled as a whole; None: rows are resampled.
        metric: its name, or a function of weighted examples.
        samples: resamples of the bootstrap.
        positive_label_index: what F1 counts.

    Raises:
        ValueError: predictions and labels differ in length, or the metric is unknown.
    """

    def __init__(
        self,
        arms: Mapping[str, Mapping[int, npt.ArrayLike]],
        labels: npt.ArrayLike,
        metric: str | WeightedMetric,
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
        rows = [np.asarray(arms[name][seed]) for name, seed in places]
        self._rows = rows
        self._judged = judged
        self._apart: Apart | None = None
        if judged is not None or groups is not None:
            gold = np.asarray(labels)
            own = [np.arange(len(gold)) if judged is None else judged[seed] for _, seed in places]
            self._apart = resample_apart(
                rows, own, gold, groups, metric, samples=samples, seed=rng_seed,
                positive_label_index=positive_label_index,
            )  # fmt: skip
            self._observed, self._values = self._apart.observed, self._apart.values
        else:
            self._observed, self._values = resample_rows(rows, labels, metric, samples, rng_seed, positive_label_index)
        self._columns: dict[str, dict[int, int]] = {name: {} for name in arms}
        for column, (name, seed) in enumerate(places):
            self._columns[name][seed] = column
        self._expected = set(expected_seeds)
        self._confidence = confidence
        self._rng_seed = rng_seed

    def one(self, name: str) -> Estimate:
        """The mean of the metric over the seeds of one arm.

        Intervals of two arms may overlap although their difference is clear: compare with :meth:`difference`, never
        by looking at two of these.
        """
        own = self._columns[name]
        seeds = sorted(own)
        columns = [own[seed] for seed in seeds]
        excluded = sorted(self._expected - set(seeds))
        return self._combine(seeds, excluded, columns, self._observed[columns], self._values[:, columns])

    def table(self, names: Sequence[str]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return ([k, S] scores, [samples, k, S] over resampled examples) of ``names`` on the seeds that all have.

        Raises:
            ValueError: no seed is common to all of them.
        """
        seeds = sorted(set.intersection(*(set(self._columns[name]) for name in names)))
        if not seeds:
            raise ValueError(f"{', '.join(names)} share no seed")
        columns = [[self._columns[name][seed] for seed in seeds] for name in names]
        observed, values = self._observed[columns], self._values[:, columns]
        if self._apart is not None:
            # As in ``over_folds``, a run counts by the share of its rows that were drawn.
            drawn = self._apart.shares[:, columns]
            values = observed + np.where(drawn > 0, drawn * (values - observed), 0.0)
        return observed, values

    def difference(self, a: str, b: str, confidence: float | None = None) -> Estimate:
        """The mean of metric(a) - metric(b) over the seeds that both arms have.

        Seeds that only one arm has, or that an arm lacks of the expected ones, are excluded and listed. The sign is
        that of the raw metric: for ``mse`` negative is better for ``a``. ``confidence`` replaces the shared one for
        this difference.
        """
        first, second = self._columns[a], self._columns[b]
        seeds = sorted(set(first) & set(second))
        excluded = sorted((set(first) | set(second) | self._expected) - set(seeds))
        left, right = [first[seed] for seed in seeds], [second[seed] for seed in seeds]
        observed = self._observed[left] - self._observed[right]
        values = self._values[:, left] - self._values[:, right]
        return self._combine(seeds, excluded, left, observed, values, confidence)

    def sample(self, a: str, b: str) -> Sample:
        """``a`` minus ``b``, as ``verdict.judge`` takes it."""
        estimate = self.difference(a, b)
        seeds, n = list(estimate.seeds), len(self._rows[0]) if self._rows else 0
        left = [self._columns[a][seed] for seed in seeds]
        right = [self._columns[b][seed] for seed in seeds]
        observed = self._observed[left] - self._observed[right]
        values = self._values[:, left] - self._values[:, right]
        clusters, repeats = float(n), 1.0
        if self._apart is not None:
            clusters = self._apart.clusters
            values = observed + few(clusters, estimate.confidence) * (values - observed)
        if self._judged is not None and self._apart is not None and seeds:
            # Rows of its own for each seed: all that rows do to a seed is its own.
            repeats = self._repeats(seeds)
            shares = self._apart.shares[:, left]
            moved = np.where(shares > 0, shares * (values - observed.mean()), 0.0)
            rows, inner = moved.mean(axis=1), float(np.var(moved, axis=0).mean())
        else:
            rows = values.mean(axis=1) if seeds else np.zeros(len(values))
            inner = float(np.var(values - observed, axis=1, ddof=1).mean()) if len(seeds) > 1 else 0.0
        bounds = (estimate.low, estimate.high)
        return Sample(observed, rows - rows.mean(), inner, clusters, repeats, bounds, self.identical(a, b))

    def _repeats(self, seeds: Sequence[int]) -> float:
        """How often each row was judged by these seeds."""
        assert self._judged is not None
        places = np.concatenate([self._judged[seed] for seed in seeds]) if seeds else np.empty(0)
        return len(places) / max(1, len(np.unique(places)))

    def still(self, name: str) -> bool:
        """Whether several seeds of an arm, judged on the same rows, gave the same predictions."""
        rows = [self._rows[column] for column in self._columns[name].values()]
        return self._judged is None and len(rows) > 1 and all(np.array_equal(rows[0], row) for row in rows[1:])

    def identical(self, a: str, b: str) -> bool:
        """Whether both arms predict the same for every example of every seed of both; False without such a seed."""
        first, second = self._columns[a], self._columns[b]
        seeds = set(first) & set(second)
        return bool(seeds) and all(np.array_equal(self._rows[first[s]], self._rows[second[s]]) for s in seeds)

    def _combine(
        self,
        seeds: list[int],
        excluded: list[int],
        columns: list[int],
        observed: npt.NDArray[np.float64],
        values: npt.NDArray[np.float64],
        confidence: float | None = None,
    ) -> Estimate:
        level = self._confidence if confidence is None else confidence
        if self._apart is not None and self._judged is None:  # all seeds are judged on the same groups
            values = observed + few(self._apart.clusters, level) * (values - observed)
        elif self._apart is not None:
            shares, clusters = self._apart.shares[:, columns], self._apart.clusters
            repeats = self._repeats(seeds)
            return over_folds(seeds, excluded, observed, values, shares, clusters, repeats, level, self._rng_seed)
        return two_level(seeds, excluded, observed, values, level, self._rng_seed)

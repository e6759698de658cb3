"""Two-level bootstrap of seeds and examples: paired differences of two arms, and single arms.

All seeds of a task are evaluated on the same validation set, so the two levels are crossed, not
nested: one resample draws the seeds and, independently, the examples, and every drawn seed
meets the same drawn examples (the pigeonhole bootstrap; Owen, Annals of Applied Statistics
2007). Drawing examples anew for each seed would average away example noise that all seeds share.

A replicate deviates from the mean by a seed part, an example part and their interaction. Two
corrections make the plain version's interval honest, both tested by simulation:

- Resampling few seeds understates their spread, by sqrt((S-1)/S) and by Student's t against
  the normal. The seed part is stretched by sqrt(S/(S-1)) t/z, as in the expanded percentile
  interval (Hesterberg, The American Statistician 2015) but at the seed level alone.
- Noise of single (seed, example) pairs would count three times (Owen and Eckles, Annals of
  Applied Statistics 2012). The seed part contains it already, so the interaction is left out
  and the example part is shrunk to what examples contribute to all seeds alike.

So with many examples the interval approaches the t-interval over seeds, and with equal seeds
the bootstrap over examples. A single seed has no measurable spread: its interval is about the
examples only, and ``verdict`` refuses to draw a conclusion from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.lazy import Array, stats
from regft_core.rng import derive

_CHUNK = 2**21  # weights held as float64 at a time


@dataclass(frozen=True)
class Estimate:
    mean: float
    low: float
    high: float
    confidence: float
    #: Seeds that went in, and the value (or difference) of each, in the same order.
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    #: Seeds that one side lacks (failed or not run), hence not part of the mean. Never ignore these:
    #: what remains is the mean of the runs that survived.
    excluded: tuple[int, ...]
    seed_deviation: float
    standard_error_seeds: float
    standard_error_examples: float
    #: [samples] the bootstrap distribution.
    replicates: npt.NDArray[np.float64] = field(repr=False, compare=False)

    @property
    def n(self) -> int:
        return len(self.seeds)

    @property
    def by_seed(self) -> dict[int, float]:
        return dict(zip(self.seeds, self.values, strict=True))

    @property
    def interval(self) -> tuple[float, float] | None:
        """(low, high); None below two seeds or two groups of rows, whose spread nobody knows."""
        return (self.low, self.high) if self.n > 1 and not math.isnan(self.low) else None


def bounded(estimate: Estimate, lowest: float, highest: float) -> Estimate:
    """The interval within what the quantity can take: few seeds would stretch it beyond 100%."""
    # min and max keep the NaN of an interval that cannot be computed when it comes first.
    return replace(estimate, low=max(estimate.low, lowest), high=min(estimate.high, highest))


def seed_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return Student's t interval of the mean over seeds (NaN below two); it says nothing about examples."""
    if len(values) < 2:
        return math.nan, math.nan
    centre, error = float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))
    width = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return centre - width, centre + width


def two_level(
    seeds: list[int], excluded: list[int], observed: Array, values: Array, confidence: float, rng_seed: int
) -> Estimate:
    """Combine ``values`` [samples, S] (examples resampled, per seed) with resampled seeds."""
    n, samples = len(seeds), len(values)
    common: dict[str, Any] = {"confidence": confidence, "seeds": tuple(seeds), "excluded": tuple(excluded)}
    if n == 0:
        return estimated(observed, math.nan, np.full(samples, math.nan), **common)
    mean, example_part = float(observed.mean()), values.mean(axis=1) - observed.mean()
    replicates = mean + example_part
    if n > 1:
        weights = seed_weights(n, samples, rng_seed) - 1 / n
        interaction = np.einsum("bs,bs->b", weights, values - observed)
        double = n / (n - 1) * float(np.var(interaction))
        shared = max(0.0, 1 - double / max(float(np.var(example_part)), 1e-300))
        replicates = mean + stretch(n, confidence) * (weights @ observed) + math.sqrt(shared) * example_part
    return estimated(observed, float(np.std(example_part, ddof=1)), replicates, **common)


def estimated(observed: Array, standard_error_examples: float, replicates: Array, **common: Any) -> Estimate:
    """The mean of ``observed`` [S] with the percentile interval of ``replicates``; NaN without seeds."""
    n = len(observed)
    low, high = percentiles(replicates, common["confidence"]) if n else (math.nan, math.nan)
    deviation = float(np.std(observed, ddof=1)) if n > 1 else math.nan
    return Estimate(
        float(observed.mean()) if n else math.nan,
        low,
        high,
        values=tuple(observed.tolist()),
        seed_deviation=deviation,
        standard_error_seeds=deviation / math.sqrt(n) if n else math.nan,
        standard_error_examples=standard_error_examples,
        replicates=replicates,
        **common,
    )


def stretch(n: float, confidence: float) -> float:
    """Return how much wider than the plain bootstrap the spread of ``n`` seeds (or groups) is; about 1 for hundreds."""
    if n < 2:  # a number of groups is an effective one
        return math.nan
    upper = (1 + confidence) / 2
    return math.sqrt(n / (n - 1)) * float(stats.t.ppf(upper, n - 1)) / NormalDist().inv_cdf(upper)


def percentiles(replicates: Array, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(replicates, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def at_least_normal(low: float, high: float, mean: float, replicates: Array, confidence: float) -> tuple[float, float]:
    """Widen the percentile interval of ``replicates`` to a normal one with their deviation, where that is wider.

    For the confidence of many comparisons: a bootstrap of a few thousand samples has no quantiles that far out.
    """
    half = NormalDist().inv_cdf((1 + confidence) / 2) * float(np.std(replicates))
    return min(low, mean - half), max(high, mean + half)


@lru_cache(maxsize=4)
def example_weights(n: int, samples: int, seed: int) -> npt.NDArray[np.uint8]:
    """Return [samples, n] counts of drawing n of n examples with replacement; read-only, and drawn once for all arms.

    A count above 255 does not occur: the chance is below 1e-500.
    """
    rng = np.random.default_rng(derive(seed, "statistics.examples", n))
    counts = np.empty((samples, n), dtype=np.uint8)
    step = max(1, _CHUNK // n)
    for start in range(0, samples, step):
        rows = min(step, samples - start)
        drawn = rng.integers(n, size=(rows, n), dtype=np.int32) + np.arange(rows, dtype=np.int32)[:, None] * n
        counts[start : start + rows] = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=32)
def seed_weights(n: int, samples: int, seed: int) -> npt.NDArray[np.float64]:
    """Return [samples, n] fractions (rows sum to 1) of drawing n of n seeds with replacement; read-only."""
    rng = np.random.default_rng(derive(seed, "statistics.seeds", n))
    weights = rng.multinomial(n, np.full(n, 1 / n), size=samples) / n
    weights.flags.writeable = False
    return weights


def resampled_metric(
    metric: str,
    labels: npt.ArrayLike,
    rows: Sequence[Array],
    *,
    samples: int,
    seed: int,
    positive_label_index: int | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the metric of each of ``rows`` (predictions [n]): (as observed [R], resampled [samples, R]).

    All rows and all calls with one ``seed`` see the same resamples, which pairs what is compared.
    """
    gold = np.asarray(labels)
    if not len(rows):
        return np.empty(0), np.empty((samples, 0))
    resampled, positive = metrics.find(metric).resampled, positive_label_index
    n, predictions = len(gold), np.stack(list(rows))
    observed = resampled(gold, predictions, np.ones((1, n)), positive)[0]
    counts = example_weights(n, samples, seed)
    values = np.empty((samples, len(predictions)))
    step = max(1, _CHUNK // n)
    for start in range(0, samples, step):
        weights = counts[start : start + step].astype(np.float64)
        values[start : start + step] = resampled(gold, predictions, weights, positive)
    return observed, values

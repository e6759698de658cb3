"""Two-level bootstrap of seeds and examples: paired differences of two arms, and single arms.

All seeds of a task are judged on the same validation set, so the two levels are crossed, not
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
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.rng import derive
from regft_core.statistics.resampling import Array, WeightedMetric, resampled_metric, seed_weights


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its interval; NaN where it cannot be computed."""

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
    #: Standard deviation over seeds (NaN below two).
    seed_deviation: float
    #: The two components of the uncertainty of the mean, separately.
    standard_error_seeds: float
    standard_error_examples: float
    #: [samples] the bootstrap distribution.
    replicates: npt.NDArray[np.float64] = field(repr=False, compare=False)

    @property
    def n(self) -> int:
        """Number of seeds that went in."""
        return len(self.seeds)


def bounded(estimate: Estimate, lowest: float, highest: float) -> Estimate:
    """The interval within what the quantity can take: few seeds would stretch it beyond 100%."""
    # min and max keep the NaN of an interval that cannot be computed when it comes first.
    return replace(estimate, low=max(estimate.low, lowest), high=min(estimate.high, highest))


def seed_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return Student's t interval of the mean over seeds (NaN below two); it says nothing about examples."""
    if len(values) < 2:
        return math.nan, math.nan
    from scipy.stats import t

    centre, error = float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))
    width = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return centre - width, centre + width


def average_over_tasks(estimates: Sequence[Estimate], rng_seed: int = 0) -> tuple[float, float, float]:
    """Return (mean, low, high) of the mean over tasks, each task weighing the same and resampled by itself.

    The tasks' corrections for few seeds stay in, so the interval is if anything too wide. Meant for
    differences in one metric; the average of unlike metrics hides what it is made of, so
    show the tasks beside it.

    Raises:
        ValueError: no task, a task without seeds, or differing confidence or numbers of samples.
    """
    if not estimates or any(e.n == 0 for e in estimates):
        raise ValueError("an average over tasks needs at least one seed in every task")
    if len({(e.confidence, len(e.replicates)) for e in estimates}) > 1:
        raise ValueError("the tasks' estimates differ in confidence or in the number of samples")
    # Tasks of one size share their example resamples; shuffling makes them independent.
    rng = np.random.default_rng(derive(rng_seed, "statistics.tasks"))
    replicates = np.mean([rng.permutation(e.replicates) for e in estimates], axis=0)
    low, high = percentiles(replicates, estimates[0].confidence)
    return float(np.mean([e.mean for e in estimates])), low, high


def resample_rows(
    rows: list[Array],
    labels: npt.ArrayLike,
    metric: str | WeightedMetric,
    samples: int,
    rng_seed: int,
    positive_label_index: int | None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the metric of each of ``rows`` (predictions [n]): (as observed [R], resampled over examples [samples, R]).

    Raises:
        ValueError: predictions and ``labels`` [n] differ in length, or the metric is unknown.
    """
    gold = np.asarray(labels)
    if not rows:
        return np.empty(0), np.empty((samples, 0))
    wrong = {len(row) for row in rows} - {len(gold)}
    if wrong or gold.size == 0:
        raise ValueError(f"{gold.size} labels, but predictions of length {sorted({len(row) for row in rows})}")
    return resampled_metric(
        metric, gold, np.stack(rows), samples=samples, seed=rng_seed, positive_label_index=positive_label_index
    )


def two_level(
    seeds: list[int], excluded: list[int], observed: Array, values: Array, confidence: float, rng_seed: int
) -> Estimate:
    """Combine ``values`` [samples, S] (examples resampled, per seed) with resampled seeds."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
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


def stretch(n: int, confidence: float) -> float:
    """Return how much wider than the plain bootstrap the spread of ``n`` seeds is at this confidence."""
    from scipy.stats import t

    upper = (1 + confidence) / 2
    return math.sqrt(n / (n - 1)) * float(t.ppf(upper, n - 1)) / NormalDist().inv_cdf(upper)


def percentiles(replicates: Array, confidence: float) -> tuple[float, float]:
    """Both ends of the central interval of replicates ``[R]``."""
    low, high = np.quantile(replicates, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)

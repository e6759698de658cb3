"""Verdicts on differences, and the one rule that gives them.

A verdict comes from an interval that is corrected for all comparisons of its family (``FAMILIES``). The mean difference
D of S seeds varies with the rows and with the seeds:

- *Rows.* The variance of D over resampled rows (``Sample.rows``). Two rows are added to it, as if each side had won one
  more: with them four discordant rows of 4:0 are no evidence (Bonett and Price, Statistics in Medicine 2012). Where
  seeds differ, the added ones have the mean square of a row's mean over the seeds, which is at least 1/S.
- *Seeds.* Each seed's skill deviates by t, which adds t^2 / S. The sample variance of the S values estimates t^2 plus
  what rows do to single seeds (``Sample.inner``). Few seeds tell little of t, so it gets a posterior on a grid
  (``SPREADS``) from a log-normal prior with heavy tails (moderated as in Smyth, Statistical Applications in Genetics
  2004). Its centre is 4.5 points, or the root mean square of t over the family where that is more: some of the methods
  whose seeds scatter widely look quiet by chance. It is never less: a reference that is quiet by chance is in all
  differences.

So D's error is a mixture of normals, whose tail gives a p. The family's level for p is the quantile of the smallest p
among joint draws of all errors (max-|t|; rows are resampled for all comparisons alike), between Bonferroni's and the
plain one. An interval also holds the pointwise one, so that no verdict contradicts the interval that is drawn.
``benchmarks/statistics.md`` has its false positives, coverage and power in simulated tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from regft_core.lazy import Array, np, optimize, special
from regft_core.rng import derive

Word = Literal["better", "worse", "no difference shown", "no verdict"]
#: Marks of the words in tables; ``BELOW_MARK`` stands beside a score.
SYMBOLS: dict[Word, str] = {"better": "+", "worse": "\N{MINUS SIGN}", "no difference shown": "=", "no verdict": "?"}
GAIN: Word = "better"
LOSS: Word = "worse"
SAME: Word = "no difference shown"
NONE: Word = "no verdict"
BELOW, BELOW_MARK = "no better than a constant answer", "!"
FAMILIES = {
    "reference": "methods against the reference",
    "control": "methods against their controls",
    "replacement": "methods against replacements of their ingredients",
    "opponent": "methods that train the encoder against the best that does not",
}

#: Deviations over seeds, in points, and their prior; both are scaled where the family scatters more than usual.
SPREADS = np.concatenate([[0.0], np.geomspace(0.25, 32.0, 22)])
USUAL_SPREAD, _FACTOR, _HEAVY, _STILL = 4.5, 0.8, 0.05, 0.05
#: Rows that are added to the discordant ones.
_ADDED = 2
POWER = 0.8
_TINY = 1e-6


def spread_prior(centre: float = USUAL_SPREAD) -> Array:
    """Return [G] what is believed of ``SPREADS`` before the data; ``centre`` in points."""
    logs = np.log(SPREADS[1:])
    weights = np.exp(-0.5 * ((logs - math.log(centre)) / _FACTOR) ** 2) + _HEAVY
    return np.concatenate([[_STILL], (1 - _STILL) * weights / weights.sum()])


@dataclass(frozen=True)
class Sample:
    """One difference (or one score minus a constant) as the rule sees it, in the metric's unit.

    Attributes:
        values: [S] of each seed.
        rows: [B] deviations of their mean when rows are resampled, the same rows in all samples.
        inner: variance of one seed's value by its rows, beyond what all seeds share.
        n: rows, or groups of rows.
        repeats: how often each row was judged, where seeds have rows of their own.
        pointwise: the interval of this difference alone, which is drawn.
        identical: both sides answer alike under every seed.
        folds: runs that judge each row once, where seeds have rows of their own; None: all judge the same rows.
    """

    values: Array
    rows: Array
    inner: float
    n: float
    repeats: float
    pointwise: tuple[float, float]
    identical: bool = False
    folds: float | None = None

    @property
    def judged(self) -> bool:
        """Whether there can be a word that says more than that nothing differs."""
        return len(self.values) > 1 and self.n >= 2 and not self.identical


@dataclass(frozen=True)
class Verdict:
    """A word with its interval; NaN bounds where there is no verdict."""

    word: Word
    #: Why there is none, or why nothing differs; empty where the interval says it.
    why: str
    #: Name of the family, its comparisons, and the confidence of all of them together.
    family: str
    comparisons: int
    confidence: float
    low: float
    high: float
    #: The smallest true difference that these seeds and rows show four times in five; None without a verdict.
    detectable: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if math.isnan(self.low) else (self.low, self.high)


def overlap(folds: float, repeats: float) -> float:
    """Return how much larger the deviation by rows is where repeats share training rows (Nadeau and Bengio, 2003)."""
    folds = max(2.0, folds)
    return 1.0 if repeats <= 1 else math.sqrt(folds * (1 / (folds * repeats) + 1 / (folds - 1)))


def overall(words: Iterable[Word]) -> Word | None:
    """``better`` only when better than each, ``worse`` when worse than any; None without a word."""
    found = set(words)
    if len(found) == 1:
        return found.pop()
    return None if not found else LOSS if LOSS in found else SAME


def judge(
    samples: Sequence[Sample],
    role: str,
    *,
    confidence: float,
    point: float,
    higher_is_better: bool = True,
    shares: int = 1,
) -> list[Verdict]:
    """Return the verdict of every comparison of one family, in order.

    Args:
        role: key of ``FAMILIES``.
        point: one shown point in the metric's unit.
        shares: parts that the error is divided into: earlier looks, candidates that one was picked from.
    """
    open_ = [i for i, sample in enumerate(samples) if sample.judged]
    error = (1 - confidence) / shares
    skills = [max(0.0, float(np.var(samples[i].values, ddof=1)) - samples[i].inner) for i in open_]
    scale = scale_of(float(np.mean(skills)), point) if open_ else 1.0
    spreads = {i: Error.of(samples[i], point, scale) for i in open_}
    level = _level([spreads[i] for i in open_], [samples[i] for i in open_], error)
    verdicts = []
    for i, sample in enumerate(samples):
        n, bounds, shown = len(sample.values), (math.nan, math.nan), None
        word = NONE
        why = "no seed of both ran to the end" if n == 0 else "one seed" if n == 1 else ""
        why = why or "hardly more than one group of rows" * (sample.n < 2)
        if sample.identical and n > 0:
            # Also under one seed: nothing can differ where no answer does.
            word, why = SAME, "identical answers"
            bounds = (0.0, 0.0)
        elif i in spreads:
            mean, half = float(sample.values.mean()), spreads[i].half_width(level)
            bounds = (min(mean - half, sample.pointwise[0]), max(mean + half, sample.pointwise[1]))
            shown = detectable(max(mean - bounds[0], bounds[1] - mean), spreads[i].deviation)
            if bounds[0] > 0 or bounds[1] < 0:
                word = GAIN if (bounds[0] > 0) == higher_is_better else LOSS
            else:
                word = SAME
        verdicts.append(Verdict(word, why, FAMILIES[role], len(open_), 1 - error, *bounds, shown))
    return verdicts


def detectable(half_width: float, error: float) -> float:
    """Return the true difference that an interval of this width excludes zero for, ``POWER`` of the time.

    ``error`` is the standard error of the mean difference.
    """
    return half_width + error * NormalDist().inv_cdf(POWER)


def scale_of(skill: float, point: float) -> float:
    """Return how many times wider than usual the seeds' deviations are, at least 1; ``skill`` is their variance."""
    return max(1.0, math.sqrt(skill) / point / USUAL_SPREAD)


@dataclass(frozen=True)
class Error:
    rows: float
    #: [G] deviations by rows and seeds together, and [G] their weights.
    deviations: Array
    weights: Array
    #: [G] deviations of the seeds' mean alone.
    seeds: Array

    @classmethod
    def of(cls, sample: Sample, point: float, scale: float) -> Error:
        n = len(sample.values)
        return cls.known(float(np.var(sample.values, ddof=1)), float(np.var(sample.rows)), n, sample, point, scale)

    @classmethod
    def known(cls, variance: float, rows: float, n: int, sample: Sample, point: float, scale: float) -> Error:
        """From the ``variance`` over ``n`` seeds, the variance of their mean over ``rows``, and ``scale_of`` seeds."""
        grid = (SPREADS * point * scale) ** 2  # variances that the skill of seeds may have
        total = np.maximum(sample.inner, (_TINY * point) ** 2) + grid
        logs = -0.5 * (n - 1) * (np.log(total) + variance / total)
        weights = np.exp(logs - logs.max()) * spread_prior()
        single = rows + sample.inner * (1 - 1 / n)
        size = max(rows / single, 1 / n) if single > 0 else 1.0
        spread = rows + _ADDED * size * (100 * point / sample.n) ** 2
        seeds = sample.repeats * grid / n
        return cls(math.sqrt(spread), np.sqrt(spread + seeds), weights / weights.sum(), np.sqrt(seeds))

    @property
    def deviation(self) -> float:
        return math.sqrt(float(self.weights @ self.deviations**2))

    def log_tail(self, beyond: Array) -> Array:
        """log P(|error| > beyond) of each of ``beyond`` [n]."""
        tail = 2 * special.ndtr(-beyond[:, None] / self.deviations) @ self.weights
        return np.asarray(np.log(np.maximum(tail, 1e-300)))

    def table(self) -> tuple[Array, Array]:
        """Places and their ``log_tail``, to interpolate between."""
        steps = np.concatenate([np.linspace(0, 6, 61), np.geomspace(6.2, 60, 40)])
        places = np.concatenate([steps * self.rows, 60 * self.rows + steps[1:] * float(self.deviations[-1])])
        return places, self.log_tail(places)

    def half_width(self, level: float) -> float:
        most = 40 * float(self.deviations[-1])
        return float(
            optimize.brentq(lambda x: float(self.log_tail(np.array([x]))[0]) - level, 0.0, most, xtol=most * 1e-9)
        )


def _level(errors: Sequence[Error], samples: Sequence[Sample], error: float) -> float:
    """The log p below which fewer than ``error`` of the families have one by chance."""
    if not errors:
        return math.log(error)
    rng = np.random.default_rng(derive(0, "statistics.verdict"))
    draws = len(samples[0].rows)
    smallest = np.zeros(draws)
    for one, sample in zip(errors, samples, strict=True):
        deviation = float(np.std(sample.rows))
        rows = sample.rows * (one.rows / deviation) if deviation > 0 else one.rows * rng.standard_normal(draws)
        spread = one.seeds[np.minimum(np.searchsorted(np.cumsum(one.weights), rng.random(draws)), len(one.seeds) - 1)]
        smallest = np.minimum(smallest, np.interp(np.abs(rows + spread * rng.standard_normal(draws)), *one.table()))
    level = float(np.quantile(smallest, error))
    return min(max(level, math.log(error / len(errors))), math.log(error))

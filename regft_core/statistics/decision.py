"""Which method to take: expected scores, shrunken a little, and what a wrong choice is expected to cost.

Significance answers another question. A rule that keeps the baseline until something beats it "significantly" loses
1.6 to 3.6 points to the best method at 70 to 500 rows (``benchmarks/decisions.py``). The rule here is Bayesian:

- The mean scores have an error with covariance E. Its part over examples is what the bootstrap shows for pairs of
  runs of different seeds, so it is what all seeds share. Its part over seeds is each method's variance around the
  seeds' common effect, divided by S; few seeds say little of it, so it is moderated towards the methods' median
  variance with ``PRIOR_SEEDS`` seeds of weight (Smyth, Statistical Applications in Genetics 2004).
- The true scores scatter around their median by Student's t with ``FREEDOM`` degrees of freedom: a method far off says
  nothing about the others. Its scale is the median absolute deviation, less the noise, and never below ``FLOOR``
  points: with few methods an estimate near zero would make all methods equal. The t is a normal whose variance is
  different for each method; those variances and the scores are found in turn (expectation maximisation).
- Posterior draws give the expected score, the probability of being the best and the expected loss of each method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regft_core.rng import derive

Array = npt.NDArray[np.float64]

#: Seeds' worth of evidence for the methods' common variance over seeds.
PRIOR_SEEDS = 4
#: Degrees of freedom of the prior, and how often it is adapted.
FREEDOM, ROUNDS = 3, 30
#: Smallest deviation, in points, with which true scores are taken to differ.
FLOOR = 4.0
#: Deviation over seeds, in points, that a single seed is taken to have.
ASSUMED_SPREAD = 2.0
DRAWS = 20_000
#: A method is called cheaper when it costs less than this share of another; less is not worth a point.
CHEAPER = 0.95
#: Consistent with a normal deviation.
_MAD = 1.4826


@dataclass(frozen=True)
class Belief:
    """The expected score of one method, in the metric's own unit."""

    #: Its shrunken mean.
    expected: float
    #: Probability that no other method is better.
    best: float
    #: Expected score of the leading method minus its own.
    loss: float


def beliefs(
    observed: Array, resampled: Array, *, point: float, higher_is_better: bool = True, rng_seed: int = 0
) -> list[Belief]:
    """Return one belief per method.

    Args:
        observed: [k, S] scores of k methods under the same S seeds.
        resampled: [samples, k, S] the same over resampled examples.
        point: what one point is in the metric's unit.
    """
    k = len(observed)
    sign = (1.0 if higher_is_better else -1.0) / point
    means = sign * observed.mean(axis=1)
    centre = float(np.median(means))
    error = _error(sign * observed, sign * resampled)
    # What examples do to all methods alike moves no deviation from the centre.
    noise = float(np.median(np.diag(error)) - np.median(error))
    scatter = (_MAD * float(np.median(np.abs(means - centre)))) ** 2 - noise
    prior = max(FLOOR**2, scatter)
    variances = np.full(k, prior)
    for _ in range(ROUNDS):
        weights = variances[:, None] * np.linalg.inv(np.diag(variances) + error)
        deviations = weights @ (means - centre)
        covariance = np.diag(variances) - weights * variances
        variances = (FREEDOM * prior + deviations**2 + np.diag(covariance)) / (FREEDOM + 1)
    expected = centre + deviations
    rng = np.random.default_rng(derive(rng_seed, "statistics.decision"))
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    draws = expected + (rng.standard_normal((DRAWS, k)) * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    best = _shares(draws)
    top = float(expected.max())
    return [Belief(float(e / sign), float(p), float((top - e) * point)) for e, p in zip(expected, best, strict=True)]


def taken(losses: Sequence[float], costs: Sequence[float], allowed: float) -> int:
    """Which method to take: the cheapest that is expected to lose at most ``allowed``, if it is cheaper than the best.

    Args:
        losses: ``Belief.loss`` of each method.
        costs: of each method, in one unit; infinite where it is not known.
        allowed: expected loss that a lower cost is worth, in the metric's unit.
    """
    best = min(range(len(losses)), key=lambda i: (losses[i], costs[i]))
    within = [i for i, loss in enumerate(losses) if loss <= allowed and costs[i] < CHEAPER * costs[best] < np.inf]
    return min(within, key=lambda i: costs[i], default=best)


def _error(observed: Array, resampled: Array) -> Array:
    """Covariance [k, k] of the means, without the effect that a seed has on all methods."""
    k, n = observed.shape
    flat = resampled.reshape(len(resampled), k * n)
    runs = np.atleast_2d(np.cov(flat, rowvar=False)).reshape(k, n, k, n)
    if n > 1:
        # Runs of one seed share more than examples; that part is in the spread over seeds already.
        shared = (runs.sum(axis=(1, 3)) - np.einsum("isjs->ij", runs)) / (n * (n - 1))
        own = observed - np.median(observed, axis=0)
        spread = own.var(axis=1, ddof=1)
        # The median: one method whose runs collapse must not cast doubt on all others. Its own spread stays as it is.
        common = (PRIOR_SEEDS * float(np.median(spread)) + (n - 1) * spread) / (PRIOR_SEEDS + n - 1)
        spread = np.maximum(common, spread)
    else:
        shared, spread = runs[:, 0, :, 0], np.full(k, ASSUMED_SPREAD**2)
    error = shared + np.diag(spread / n)
    values, vectors = np.linalg.eigh((error + error.T) / 2)
    return np.asarray((vectors * np.clip(values, 0, None)) @ vectors.T)


def _shares(draws: Array) -> Array:
    """How often each column is the largest."""
    return np.bincount(draws.argmax(axis=1), minlength=draws.shape[1]) / len(draws)

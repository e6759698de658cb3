"""Which method to take: expected scores of all methods, and what a wrong choice is expected to cost.

The best of several means is too high, so means are pulled together (empirical Bayes; Efron and Morris, JASA 1975):

- A mean score has an error of its own, beside what rows and seeds do to all methods alike. Its variance is that of the
  rows, which the bootstrap shows for pairs of runs of different seeds and which counts as the same for all methods,
  plus the variance of the method's seeds divided by S, of which each method has a posterior (``_spreads``).
- True scores scatter normally around a centre, with a deviation that the data choose (``SPREADS``, integrated over its
  posterior). A share ``FAR`` of the methods is of another kind, off by ``FAR_SPREAD`` points, such as constant answers.
- Draws from the posterior give the expected score with its interval, which holds also for the method that is picked,
  the probability of being the best and the expected loss.

``benchmarks/statistics.md`` has bias, coverage, regret and calibration in simulated grids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regft_core.lazy import Array, np
from regft_core.rng import derive
from regft_core.statistics import verdict

#: Deviations, in points, with which true scores may scatter, and what is believed of each before the data.
SPREADS = np.concatenate([[0.0], np.geomspace(0.25, 32.0, 22)])
_BEFORE = np.concatenate([[0.25], np.full(22, 0.75 / 22)])
#: Methods of another kind: their share, and by how many points they are off.
FAR, FAR_SPREAD = 0.05, 20.0
DRAWS = 20_000
#: Centres that deviations over seeds may have in common, in points; each as likely as the others before the data.
_PRIORS = np.stack([verdict.spread_prior(centre) for centre in np.geomspace(1.0, 18.0, 8)])
#: Rows from which an out-of-distribution set decides; resamples of fewer do not show how little they say.
FEWEST_ROWS = 20
#: Power of the number of rows with which what a score lacks falls: of language tasks 0.07 to 0.35 (Hestness et al.,
#: 2017), of small ones 0.02 to 0.65 (``benchmarks/statistics.md``).
LEARNING = 0.2
_ROUNDS = 20
#: Least variance of an error, in points squared.
_TINY = 1e-6


@dataclass(frozen=True)
class Belief:
    #: Its mean, pulled towards the others', with the interval that holds also for the method that is picked.
    expected: float
    low: float
    high: float
    best: float
    #: Expected score of the leading method minus its own.
    loss: float


def beliefs(
    observed: Array,
    resampled: Array,
    *,
    point: float,
    confidence: float = 0.95,
    higher_is_better: bool = True,
    constant: Sequence[bool] = (),
) -> list[Belief]:
    """Return one belief per method.

    Args:
        constant: of each method whether its answer is a constant, whose error tells nothing of the others'.
        observed: [k, S] scores of k methods under the same S seeds.
        resampled: [samples, k, S] the same over resampled examples.
        point: what one point is in the metric's unit.
    """
    k, sign = len(observed), (1.0 if higher_is_better else -1.0) / point
    means = sign * observed.mean(axis=1)
    reads = ~np.array(constant) if constant and not all(constant) else np.full(k, True)
    level, own, likely = _errors(observed / point, resampled[:, reads] / point, reads)
    # Components [C] of a method's distance from the centre: its variance over seeds, and whether it is of another kind.
    own, likely = np.tile(own, 2), np.concatenate([(1 - FAR) * likely, FAR * likely], axis=1)
    kind = np.repeat([0.0, FAR_SPREAD**2], len(own) // 2)
    variance = SPREADS[:, None, None] ** 2 + kind + own  # [G, 1, C]
    centre = np.full((len(SPREADS), 1), np.median(means))
    with np.errstate(divide="ignore"):  # a component may have no weight
        before = np.log(likely)
    for _ in range(_ROUNDS):  # expectation maximisation, in logarithms: methods may be thousands of points apart
        heights = before - 0.5 * (means - centre)[:, :, None] ** 2 / variance - 0.5 * np.log(variance)
        peaks = heights.max(axis=2, keepdims=True)
        density = np.exp(heights - peaks)
        total = density.sum(axis=2, keepdims=True)
        share = density / total  # [G, k, C]
        precision = (share / variance).sum(axis=2)
        centre = ((precision @ means) / precision.sum(axis=1))[:, None]
    logs = (np.log(total) + peaks).sum(axis=(1, 2)) - 0.5 * np.log(precision.sum(axis=1))
    weights = _BEFORE * np.exp(logs - logs.max())
    weights /= weights.sum()
    pulls = own / variance
    pull = (share * pulls).sum(axis=2)
    pulled = means + pull * (centre - means)
    doubt = (share * (1 - pulls) * own).sum(axis=2) + ((share * pulls**2).sum(axis=2) - pull**2) * (centre - means) ** 2
    expected = weights @ pulled
    rng = np.random.default_rng(derive(0, "statistics.decision"))
    drawn = rng.choice(len(SPREADS), DRAWS, p=weights)
    middle = rng.standard_normal(DRAWS) / np.sqrt(precision.sum(axis=1))[drawn]
    draws = pulled[drawn] + pull[drawn] * middle[:, None]
    draws += np.sqrt(np.maximum(doubt, 0.0))[drawn] * rng.standard_normal((DRAWS, k))
    best = np.bincount(draws.argmax(axis=1), minlength=k) / DRAWS
    # What rows and seeds do to all methods alike moves no method past another.
    draws += np.sqrt(level) * rng.standard_normal((DRAWS, 1))
    ends = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0) / sign
    rows = zip(expected / sign, *np.sort(ends, axis=0), best, (expected.max() - expected) * point, strict=True)
    return [Belief(*map(float, row)) for row in rows]


def of_all_rows(belief: Belief, share: float, best: float) -> Belief:
    """Return the belief in a model of all rows, where those that were evaluated trained on a ``share`` of them.

    Scores of cross-validation are those of smaller models (Hastie et al., Elements of Statistical Learning, 7.10). What
    a score lacks to the ``best`` falls with the rows to the power ``-LEARNING``, which differs between tasks, so the
    interval grows by twice the gain on the side of the better. ``loss`` stays. So does a metric without a finite best.
    """
    gain = (best - belief.expected) * (1 - share**LEARNING)
    if gain == 0 or not np.isfinite(gain):
        return belief
    low, high = sorted((belief.low, belief.high))
    low, high = (low, min(best, high + 2 * gain)) if gain >= 0 else (max(best, low + 2 * gain), high)
    return replace(belief, expected=belief.expected + gain, low=low, high=high)


def _errors(observed: Array, resampled: Array, reads: Array) -> tuple[float, Array, Array]:
    """Return variances of errors: (what all methods share, [H] what a method has of its own, [k, H] how likely).

    ``reads`` [k] marks the methods that they are estimated from, whose scores are ``resampled``.
    """
    k, n = resampled.shape[1:]
    runs = np.atleast_2d(np.cov(resampled.reshape(len(resampled), k * n), rowvar=False)).reshape(k, n, k, n)
    single = float(np.einsum("isis->", runs)) / (k * n)
    common = np.median(observed[reads], axis=0)
    shared, variances = runs[:, 0, :, 0], np.zeros(len(observed))
    if n > 1:
        # Runs of one seed share more than examples; that part is in the spread over seeds already.
        shared = (runs.sum(axis=(1, 3)) - np.einsum("isjs->ij", runs)) / (n * (n - 1))
        variances = (observed - common).var(axis=1, ddof=1)
    alike = float(shared.sum() - np.trace(shared)) / (k * (k - 1)) if k > 1 else float(shared[0, 0])
    rows = max(0.0, float(np.trace(shared)) / k - alike)
    inner = max(0.0, single - float(np.trace(shared)) / k) if n > 1 else 0.0
    own = rows + (verdict.SPREADS**2 + inner) / n
    level = max(0.0, alike) + (float(common.var(ddof=1)) / n if n > 1 else 0.0)
    return level, np.maximum(own, _TINY), _spreads(variances, inner, n)


def _spreads(variances: Array, inner: float, n: int) -> Array:
    """Return [k, H] how likely each deviation over seeds (``verdict.SPREADS``) is for each method.

    The prior is that of the verdicts, around a centre that the methods' [k] ``variances`` of ``n`` seeds tell together.
    The verdicts' least centre would here pull a method that is clearly worse towards the others.
    """
    total = np.maximum(inner, _TINY) + verdict.SPREADS**2
    logs = -0.5 * (n - 1) * (np.log(total) + variances[:, None] / total)
    posteriors = np.exp(logs - logs.max(axis=1, keepdims=True))[:, None] * _PRIORS  # [k, centres, H]
    evidence = posteriors.sum(axis=2)
    centres = np.log(evidence).sum(axis=0)
    weights = np.exp(centres - centres.max())
    return np.einsum("c,kch->kh", weights / weights.sum(), posteriors / evidence[:, :, None])

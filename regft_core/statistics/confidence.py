"""Calibrate the confidence of a classifier, and find the threshold below which it should give no answer.

The temperature is that of Guo et al., ICML 2017, section 4.2. The threshold guarantees an accuracy of the answers that
are given to new rows like these, with the given probability over the draw of these rows.

Rows are sorted by confidence. The exact binomial bound of Clopper and Pearson (Biometrika 1934) says how accurate the m
most confident answers are at least. Four sequences of m start at a quarter, half, three quarters and all of the rows,
each with a quarter of the error, and go on to more rows while they pass (fixed-sequence testing, as in Learn then Test,
Angelopoulos et al., arXiv:2110.01052). Rows of one group (an author, a product) are right or wrong together, so of rows
with groups the effective number counts, (sum n_g)^2 / sum n_g^2 (Kish, Survey Sampling, 1965, section 8.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy.typing as npt

from regft_core.lazy import Array, np, optimize, stats

#: Smallest and largest temperature that is tried, as logarithms: far beyond what is ever found.
_LOG_TEMPERATURES = (-4.0, 4.0)
STARTS = (0.25, 0.5, 0.75, 1.0)
STEP = 0.05


def fit_temperature(log_probabilities: Callable[[float], Array], gold: Array) -> float:
    """Return the temperature with the largest likelihood of labels ``gold`` [n], to 1e-6 of its logarithm.

    ``log_probabilities`` gives [n, K] at a temperature. Where every largest one is right, the smallest wins.
    """
    rows = np.arange(len(gold))

    def loss(logarithm: float) -> float:
        return float(-log_probabilities(float(np.exp(logarithm)))[rows, gold].mean())

    minimum = optimize.minimize_scalar(loss, bounds=_LOG_TEMPERATURES, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(minimum.x))


def equal_mass(confidences: Array, bins: int) -> Array:
    """[n] bin of each confidence; bins start at the quantiles, ties share the later one."""
    ordered = np.sort(confidences)
    starts = ordered[[part[0] for part in np.array_split(np.arange(len(ordered)), bins) if len(part)]]
    return np.searchsorted(np.unique(starts), confidences, side="right") - 1


@dataclass(frozen=True)
class Threshold:
    """Answers at this confidence and above are right at least as often as was asked for."""

    threshold: float
    coverage: float


def lower_bound(right: int, n: int, error: float) -> float:
    """Return Clopper and Pearson's lower bound of a proportion; it is too high with probability at most ``error``."""
    if right == 0:
        return 0.0
    return float(stats.beta.ppf(error, right, n - right + 1))


def effective(groups: npt.ArrayLike) -> float:
    """Return the effective number of groups, of rows whose groups are [n]; 0 without rows."""
    sizes = np.unique(np.asarray(groups), return_counts=True)[1]
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if len(sizes) else 0.0


def threshold_for(
    confidences: npt.ArrayLike,
    right: npt.ArrayLike,
    accuracy: float,
    confidence: float = 0.95,
    groups: npt.ArrayLike | None = None,
) -> Threshold | None:
    """Return the threshold that answers most rows and guarantees ``accuracy``; None when no test passes.

    Args:
        confidences: [n] of rows that the model was not trained on.
        right: [n] whether the answer to each is right.
        groups: [n] the group of each, as numbers; None: each row is its own.
    """
    rows, error = _Rows(confidences, right, groups), (1 - confidence) / len(STARTS)
    thresholds = [one for start in rows.starts() if (one := _sequence(rows, start, error, accuracy))]
    return max(thresholds, key=lambda one: one.coverage, default=None)


def best_guarantee(
    confidences: npt.ArrayLike, right: npt.ArrayLike, confidence: float = 0.95, groups: npt.ArrayLike | None = None
) -> float:
    """Return the highest accuracy for which ``threshold_for`` finds a threshold at one of its starts."""
    rows, error = _Rows(confidences, right, groups), (1 - confidence) / len(STARTS)
    return max(rows.bound(m, error) for m in rows.starts())


class _Rows:
    """Rows by falling confidence; arguments as in ``threshold_for``."""

    def __init__(self, confidences: npt.ArrayLike, right: npt.ArrayLike, groups: npt.ArrayLike | None) -> None:
        scores, sound = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=bool)
        order = np.argsort(-scores, kind="stable")
        self.scores, self._right = scores[order], np.cumsum(sound[order])
        self._groups = None if groups is None else np.asarray(groups)[order]

    def __len__(self) -> int:
        return len(self.scores)

    def whole(self, m: int) -> int:
        """At least ``m`` rows: those of equal confidence are answered together."""
        return int(np.searchsorted(-self.scores, -self.scores[m - 1], side="right"))

    def starts(self) -> list[int]:
        return [self.whole(max(1, round(share * len(self)))) for share in STARTS]

    def bound(self, m: int, error: float) -> float:
        """The least accuracy of the first ``m``; too high with probability at most ``error``."""
        n = m if self._groups is None else int(effective(self._groups[:m]))
        # Rounded down, but for the last bit of a product that is a whole number.
        return lower_bound(int(float(self._right[m - 1]) / m * n + 1e-9), n, error)


def _sequence(rows: _Rows, start: int, error: float, accuracy: float) -> Threshold | None:
    m, n, last = start, len(rows), None
    while rows.bound(m, error) >= accuracy:
        last = Threshold(float(rows.scores[m - 1]), m / n)
        if m == n:
            break
        m = rows.whole(min(n, m + max(1, round(STEP * n))))
    return last

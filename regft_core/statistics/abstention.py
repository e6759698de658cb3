"""When a classifier should not answer: a confidence threshold with a guaranteed accuracy.

Rows are sorted by confidence. For a number m of the most confident rows, the exact binomial bound of Clopper and
Pearson (Biometrika 1934) says how accurate answers above that threshold are at least. Several m are tested, so they
share the error: four sequences start at a quarter, half, three quarters and all of the rows, each with a quarter of
it, and go on to more rows while they pass (fixed-sequence testing, as in Learn then Test, Angelopoulos et al.,
arXiv:2110.01052; selective classification: Geifman and El-Yaniv, NeurIPS 2017). The guarantee is for new rows like
these, with the given probability over the draw of these rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Shares of the rows at which a sequence of tests starts.
STARTS = (0.25, 0.5, 0.75, 1.0)
#: Steps of one sequence, as a share of the rows.
STEP = 0.05


@dataclass(frozen=True)
class Threshold:
    """Answers at this confidence and above are right at least as often as was asked for."""

    threshold: float
    #: Share of the rows that are answered.
    coverage: float
    #: Of the answered rows, as observed, and what is guaranteed.
    observed: float
    guaranteed: float


def lower_bound(right: int, n: int, error: float) -> float:
    """Return Clopper and Pearson's lower bound of a proportion; it is too high with probability at most ``error``.

    Raises:
        ValueError: ``right`` is not between 0 and ``n``, or ``n`` is 0.
    """
    if not 0 <= right <= n or not n:
        raise ValueError(f"{right} right of {n}")
    if right == 0:
        return 0.0
    from scipy.stats import beta

    return float(beta.ppf(error, right, n - right + 1))


def threshold_for(
    confidences: npt.ArrayLike, right: npt.ArrayLike, accuracy: float, confidence: float = 0.95
) -> Threshold | None:
    """Return the threshold that answers most rows and guarantees ``accuracy``; None when no test passes.

    Args:
        confidences: [n] of rows that the model was not trained on.
        right: [n] whether the answer to each is right.

    Raises:
        ValueError: lengths differ, no rows, or a share outside (0, 1).
    """
    if not 0 < accuracy < 1 or not 0 < confidence < 1:
        raise ValueError(f"accuracy {accuracy} and confidence {confidence} must lie between 0 and 1")
    found = [found for found in _sequences(confidences, right, (1 - confidence) / len(STARTS), accuracy) if found]
    return max(found, key=lambda one: one.coverage, default=None)


def best_guarantee(confidences: npt.ArrayLike, right: npt.ArrayLike, confidence: float = 0.95) -> float:
    """Return the highest accuracy for which ``threshold_for`` finds a threshold at one of its starts."""
    error = (1 - confidence) / len(STARTS)
    scores, sound = _sorted(confidences, right)
    return max(lower_bound(int(sound[:m].sum()), m, error) for m in _starts(scores))


def _sorted(confidences: npt.ArrayLike, right: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    scores, sound = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=bool)
    if scores.shape != sound.shape or scores.ndim != 1 or not len(scores):
        raise ValueError(f"{scores.shape} confidences for {sound.shape} answers")
    order = np.argsort(-scores, kind="stable")
    return scores[order], sound[order]


def _whole(scores: npt.NDArray[np.float64], m: int) -> int:
    """At least ``m`` rows: those of equal confidence are answered together."""
    return int(np.searchsorted(-scores, -scores[m - 1], side="right"))


def _starts(scores: npt.NDArray[np.float64]) -> list[int]:
    return [_whole(scores, max(1, round(share * len(scores)))) for share in STARTS]


def _sequences(
    confidences: npt.ArrayLike, right: npt.ArrayLike, error: float, accuracy: float
) -> list[Threshold | None]:
    scores, sound = _sorted(confidences, right)
    n = len(scores)
    counts = np.cumsum(sound)
    found: list[Threshold | None] = []
    for m in _starts(scores):
        last: Threshold | None = None
        while True:
            bound = lower_bound(int(counts[m - 1]), m, error)
            if bound < accuracy:
                break
            last = Threshold(float(scores[m - 1]), m / n, float(counts[m - 1]) / m, bound)
            if m == n:
                break
            m = _whole(scores, min(n, m + max(1, round(STEP * n))))
        found.append(last)
    return found

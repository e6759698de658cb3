"""Whether confidence is right: calibration errors, proper scores and the reliability diagram, per set.

With p the probabilities of a set's labels (softmax, summed over merged labels), c the probability of the
predicted label and r whether it is right:

- expected calibration error (Naeini et al. 2015; Guo et al. 2017): sum over bins of n_b / n |mean c - mean r|,
  over ``bins`` bins of equal width on (0, 1] (``ece_width``), and over at most ``bins`` bins with equally many
  examples (``ece_mass``; Nguyen and O'Connor 2015). Equal confidences share a bin of equal mass, so that nothing
  depends on the order of the rows. Both are biased upwards on small sets: compare arms on one set, not with 0.
- Brier score (Brier 1950), the mean of sum_k (p_k - y_k)^2, from 0 to 2.
- negative log-likelihood, the mean of -log p of the gold label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from regft_core.evaluate.analysis_result import Findings, Plot, Table
from regft_core.lazy import Array, np
from regft_core.schema import StrictModel
from regft_core.statistics.confidence import equal_mass

if TYPE_CHECKING:
    from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet

DESCRIPTION = "calibration errors, Brier score, likelihood and reliability of the predicted probabilities"
KINDS = ("classification",)
NEEDS_MODEL = False


class Config(StrictModel):
    bins: int = Field(15, ge=2, le=1000, description="bins of both calibration errors and of the diagram")


def run(run: EvaluatedRun) -> Findings:
    bins = run.options.bins
    scalars = {name: scores(judged, bins) for name, judged in run.sets.items()}
    tables = {name: {"reliability": reliability(judged, bins)} for name, judged in run.sets.items()}
    ranges = {"ece_width": (0.0, 1.0), "ece_mass": (0.0, 1.0), "brier": (0.0, 2.0), "nll": (0.0, None)}
    return Findings(scalars, tables, ranges)


def scores(judged: EvaluatedSet, bins: int) -> dict[str, float]:
    probabilities, confidences = judged.probabilities(), judged.confidences()
    rows, right = np.arange(len(judged)), judged.predictions == judged.gold
    gold = np.zeros_like(probabilities)
    gold[rows, judged.gold] = 1.0
    return {
        "ece_width": calibration_error(confidences, right, equal_width(confidences, bins)),
        "ece_mass": calibration_error(confidences, right, equal_mass(confidences, bins)),
        "brier": float(((probabilities - gold) ** 2).sum(axis=1).mean()),
        "nll": float(-np.log(np.maximum(probabilities[rows, judged.gold], np.finfo(np.float64).tiny)).mean()),
    }


def equal_width(confidences: Array, bins: int) -> Array:
    """[n] bin of each confidence; bin b holds (b / bins, (b + 1) / bins]."""
    return np.clip(np.ceil(confidences * bins).astype(np.int64) - 1, 0, bins - 1)


def calibration_error(confidences: Array, right: Array, which: Array) -> float:
    """Mean over examples of their bin's |mean confidence - accuracy|; ``which`` [n] are the bins."""
    gaps = np.bincount(which, weights=confidences - right)
    return float(np.abs(gaps).sum() / len(confidences))


def reliability(judged: EvaluatedSet, bins: int) -> Table:
    """Bins of equal width with their number of examples, mean confidence and accuracy; empty ones have neither."""
    confidences, right = judged.confidences(), judged.predictions == judged.gold
    which = equal_width(confidences, bins)
    rows = []
    for b in range(bins):
        own = which == b
        n = int(own.sum())
        means = (float(confidences[own].mean()), float(right[own].mean())) if n else (None, None)
        rows.append((f"{b / bins:.3g} to {(b + 1) / bins:.3g}", n, *means))
    plot = Plot("confidence", "accuracy", baseline="confidence")
    return Table(("probability", "examples", "confidence", "accuracy"), tuple(rows), 1, "examples", plot)

"""Which classes are right and wrong: the confusion matrix, and precision, recall and F1 of each class, per set.

Where an example has several labels there is no confusion matrix: each label is counted by itself.

What is undefined because a class was never predicted (its precision) or never occurs (its recall) is 0, as
in the metrics; macro averages are over the classes that occur among gold labels or predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regft_core.evaluate.analysis_result import Findings, Table
from regft_core.kinds import find
from regft_core.lazy import np

if TYPE_CHECKING:
    import numpy.typing as npt

    from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet

DESCRIPTION = "confusion matrix, and precision, recall and F1 of each class"
KINDS = ("classification", "multi_label")
NEEDS_MODEL = False


def run(run: EvaluatedRun) -> Findings:
    scalars, tables = {}, {}
    for name, judged in run.sets.items():
        counts = confusion(judged) if find(judged.kind).one_label else None
        hits, claimed, support = totals(judged) if counts is None else of_confusion(counts)
        precision, recall, f1 = rates(hits, claimed, support)
        occurring, present = claimed + support > 0, support > 0
        if not occurring.any():
            occurring = present = np.ones_like(occurring)  # empty sets only: no label to be right about
        scalars[name] = {
            "macro_precision": float(precision[occurring].mean()),
            "macro_recall": float(recall[occurring].mean()),
            "macro_f1": float(f1[occurring].mean()),
            "lowest_recall": float(recall[present].min()),
        }
        columns = zip(judged.labels, support, precision, recall, f1)
        own = {"classes": Table(("class", "examples", "precision", "recall", "f1"), tuple(columns), keys=1)}
        if counts is not None:
            rows = tuple((label, *row) for label, row in zip(judged.labels, counts))
            own["confusion"] = Table(("gold (rows), predicted", *judged.labels), rows, keys=1)
        tables[name] = own
    names = ("macro_precision", "macro_recall", "macro_f1", "lowest_recall")
    return Findings(scalars, tables, dict.fromkeys(names, (0.0, 1.0)))


def confusion(judged: EvaluatedSet) -> npt.NDArray[Any]:
    """[L, L] number of examples by gold label (rows) and predicted label."""
    counts = np.zeros((len(judged.labels), len(judged.labels)), dtype=np.int64)
    np.add.at(counts, (judged.gold, judged.predictions), 1)
    return counts


def of_confusion(counts: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Of each class of a confusion matrix [L, L]: examples that are right, predicted and there, each [L]."""
    return np.diag(counts), counts.sum(axis=0), counts.sum(axis=1)


def totals(judged: EvaluatedSet) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The same of a set whose examples have several labels."""
    has, claims = (find(judged.kind).indicators(x, len(judged.labels)) for x in (judged.gold, judged.predictions))
    return (has & claims).sum(axis=0), claims.sum(axis=0), has.sum(axis=0)


def rates(
    hits: npt.NDArray[Any], claimed: npt.NDArray[Any], present: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Precision, recall and F1 [L]."""

    def ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)

    return ratio(hits, claimed), ratio(hits, present), ratio(2 * hits, claimed + present)

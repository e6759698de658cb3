"""One run's part of ``result.json`` and its prediction rows, from logits: numpy, no files, no model.

Whatever is undefined because a side is constant (a correlation, Matthews, F1 without a positive) is 0.0: no evidence of
skill. ``Kind.collapsed`` flags such runs, so that the zero never stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.evaluate.evaluated import EvaluatedSet, positive_index
from regft_core.kinds import find
from regft_core.kinds._decision import Decision, decided

#: On fewer rows a run that learned something is often no better than a constant answer: a fold, by bad luck.
ENOUGH_ROWS = 50


def evaluate_run(
    judged_sets: Mapping[str, EvaluatedSet], task: Mapping[str, Any], *, reads_text: bool = True
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return the scores of one run on every set, and its prediction rows, ready for JSON.

    Scores: ``sets`` (set -> ``n``, ``metrics``, ``majority``, ``warning``, ``positive_label_index``: what F1 counts, in
    the set's label space) and ``collapsed`` (None, "constant" or "majority": ``Kind.collapsed`` on the validation set).
    Rows: set -> [{"idx", "label", "prediction", "scores"}], label and prediction in the set's label space.

    ``task`` is the content of ``task.json``: ``kind``, ``labels`` (own, None where there are none), ``metrics``,
    ``positive_label`` (own name; the last label when None), ``primary`` and of ``sets`` what is ``reversed`` are read.
    ``majority`` in the result is the score of ``Kind.constant`` on the same set.
    ``reads_text`` is False for a method that answers with a constant on purpose, which never counts as collapsed.
    """
    sets, rows, collapsed, kind = dict[str, Any](), dict[str, Any](), None, find(task["kind"])
    for name, judged in judged_sets.items():
        gold = judged.gold.astype(kind.dtype, copy=False)
        predictions, scores = judged.predictions, judged.probabilities()
        positive = positive_index(list(task["labels"] or ()), task.get("positive_label"), judged.to_set)
        answers = (predictions.astype(kind.dtype, copy=False), kind.constant(gold).astype(kind.dtype, copy=False))
        scored, constant = (
            {metric: metrics.find(metric).score(gold, answer, positive) for metric in task["metrics"]}
            for answer in answers
        )
        # A set that is built so that a shortcut answers the opposite makes predictions look swapped.
        expected = (task["sets"].get(name) or {}).get("reversed", False)
        sets[name] = {
            "n": int(gold.size),
            "metrics": scored,
            "majority": constant,
            "warning": None if expected else kind.warning(gold, predictions, list(judged.labels)),
            "positive_label_index": positive,
        }
        ids = [example.idx for example in judged.examples]
        rows[name] = [
            {"idx": idx, "label": label, "prediction": prediction, "scores": row}
            for idx, label, prediction, row in zip(ids, gold.tolist(), predictions.tolist(), scores.tolist())
        ]
        if name == "dev" and reads_text:
            found = kind.collapsed(gold, predictions)
            few = found == "majority" and gold.size < ENOUGH_ROWS
            # Offsets give up accuracy for the metric that they were fitted to.
            better = judged.decision is not None and scored[task["primary"]] > constant[task["primary"]]
            collapsed = None if few or better else found
    return {"sets": sets, "collapsed": collapsed}, rows


def primary_score(
    logits: npt.NDArray[Any],
    labels: Sequence[int] | Sequence[float],
    task: Mapping[str, Any],
    decision: Decision | None = None,
) -> float:
    """Return the task's primary metric of ``logits`` [n, K] for its own ``labels`` [n]."""
    kind, own = find(task["kind"]), list(task["labels"] or ())
    to_set = np.arange(len(own))
    predictions = kind.predictions(decided(decision, logits), to_set).astype(kind.dtype, copy=False)
    positive = positive_index(own, task.get("positive_label"), to_set)
    return float(metrics.find(task["primary"]).score(np.asarray(labels).astype(kind.dtype), predictions, positive))

"""One run's part of ``result.json`` and its prediction rows, from logits: numpy, no files, no model.

Whatever is undefined because a side is constant (a correlation, Matthews, F1 without a positive) is 0.0: no evidence of
skill. ``Kind.collapsed`` flags such runs, so that the zero never stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.errors import DataError, RunFailed
from regft_core.evaluate import ood
from regft_core.kinds import Kind, find
from regft_core.kinds._decision import Decision, decided

#: On fewer rows a run that learned something is often no better than a constant answer: a fold, by bad luck.
ENOUGH_ROWS = 50


@dataclass(frozen=True)
class SetInfo:
    """The gold side of one set, in the order of its logits."""

    #: [n] indices into ``label_names``, or values.
    labels: Sequence[int] | Sequence[float] | npt.NDArray[Any]
    #: [n] identifiers, unique in the set.
    ids: Sequence[str]
    #: The task's own label -> this set's label; None when the names are the same.
    label_map: Mapping[str, str] | None = None
    #: This set's labels; None when there are none, or when they are the task's own in the same order.
    label_names: Sequence[str] | None = None
    #: Whether it is built so that a shortcut answers the opposite: predictions that look swapped are expected.
    reversed: bool = False


@dataclass(frozen=True)
class Evaluation:
    """The scores of one run, ready for JSON."""

    #: set -> {"n": int, "metrics": {name: value}, "majority": {name: value}, "warning": str | None,
    #: "positive_label_index": int | None (what F1 counts, in the set's label space)}
    sets: dict[str, dict[str, Any]]
    #: None, "constant" or "majority": ``Kind.collapsed`` on the validation set.
    collapsed: str | None
    #: set -> [{"idx", "label", "prediction", "scores"}], label and prediction in the set's label space
    rows: dict[str, list[dict[str, Any]]]


def evaluate_run(
    logits_by_set: Mapping[str, npt.NDArray[Any]],
    sets: Mapping[str, SetInfo],
    task: Mapping[str, Any],
    *,
    reads_text: bool = True,
    decision: Decision | None = None,
) -> Evaluation:
    """Score one run on every set.

    ``logits_by_set`` holds [n, K] per set (K outputs; a value is in the labels' unit).
    ``task`` is the content of ``task.json``: ``kind``, ``labels`` (own, None where there are none),
    ``metrics``, ``positive_label`` (own name; the last label when None) and, with a ``decision``, ``primary`` are read.
    ``majority`` in the result is the score of ``Kind.constant`` on the same set.
    ``decision`` is how the run's logits become predictions; scores are the same without it.
    ``reads_text`` is False for a method that answers with a constant on purpose, which never counts as collapsed.

    Raises:
        DataError: rows cannot be scored, or labels cannot be mapped.
        RunFailed: a logit is NaN or infinite.
    """
    evaluation = Evaluation({}, None, {})
    kind, labels = find(task["kind"]), list(task["labels"] or [])
    for name, info in sets.items():
        logits = logits_by_set[name]
        gold = _gold(name, logits, info).astype(kind.dtype, copy=False)
        set_labels = list(info.label_names) if info.label_names is not None else labels
        to_set = ood.label_indices(labels, set_labels, info.label_map, name)
        _check_reachable(name, kind, gold, to_set, set_labels)
        predictions = kind.predictions(decided(decision, logits), to_set)
        scores = kind.scores(logits, to_set, len(set_labels))
        positive = ood.positive_index(labels, task.get("positive_label"), to_set)
        answers = (predictions.astype(kind.dtype, copy=False), kind.constant(gold).astype(kind.dtype, copy=False))
        scored, constant = (
            {metric: metrics.find(metric).score(gold, answer, positive) for metric in task["metrics"]}
            for answer in answers
        )
        evaluation.sets[name] = {
            "n": int(gold.size),
            "metrics": scored,
            "majority": constant,
            "warning": None if info.reversed else kind.warning(gold, predictions, set_labels),
            "positive_label_index": positive,
        }
        evaluation.rows[name] = [
            {"idx": idx, "label": label, "prediction": prediction, "scores": row}
            for idx, label, prediction, row in zip(info.ids, gold.tolist(), predictions.tolist(), scores.tolist())
        ]
        if name == "dev" and reads_text:
            collapsed = kind.collapsed(gold, predictions)
            few = collapsed == "majority" and gold.size < ENOUGH_ROWS
            # Offsets give up accuracy for the metric that they were fitted to.
            better = decision is not None and scored[task["primary"]] > constant[task["primary"]]
            evaluation = replace(evaluation, collapsed=None if few or better else collapsed)
    return evaluation


def primary_score(
    logits: npt.NDArray[Any],
    labels: Sequence[int] | Sequence[float],
    task: Mapping[str, Any],
    decision: Decision | None = None,
) -> float:
    """Return the task's primary metric of ``logits`` [n, K]; no other metric may be undefined here, or enter a key."""
    info = SetInfo(labels, [str(number) for number in range(len(labels))])
    task = {**task, "metrics": [task["primary"]]}
    scores = evaluate_run({"rows": logits}, {"rows": info}, task, decision=decision).sets["rows"]
    return float(scores["metrics"][task["primary"]])


def _gold(name: str, logits: npt.NDArray[Any], info: SetInfo) -> npt.NDArray[Any]:
    """Return the gold labels as an array, after a look at rows, labels and logits."""
    gold = np.asarray(info.labels)
    if len(set(info.ids)) != len(info.ids):
        raise DataError(
            "index-twice", f"set '{name}': an idx occurs twice, so predictions of two runs could not be paired"
        )
    if not len(gold):
        raise DataError(
            "no-rows", f"set '{name}' has no examples, so it has no metrics; check its split in the task's YAML"
        )
    if not np.isfinite(gold.astype(np.float64)).all():
        raise DataError("not-finite", f"set '{name}': a label is NaN or infinite\n    -> correct the labels of the set")
    bad = ~np.isfinite(logits).all(axis=1)
    if bad.any():
        raise RunFailed(
            "not-finite",
            f"set '{name}': logits of {int(bad.sum())} of {bad.size} examples are NaN or infinite\n"
            "    -> lower training.learning_rate, or use precision: fp32",
        )
    return gold


def _check_reachable(
    name: str, kind: Kind, gold: npt.NDArray[Any], to_set: npt.NDArray[np.int64], set_labels: Sequence[str]
) -> None:
    """Refuse gold labels that no own label maps to: every such row would count as wrong for any model."""
    try:
        lost = kind.unreachable(gold, to_set, set_labels)
    except ValueError as error:
        hidden = "; -1 usually marks the hidden labels of a test split, so use another split" if -1 in gold else ""
        raise DataError("not-class-indices", f"set '{name}': {error}{hidden}") from error
    if lost:
        raise DataError(
            "label-unreached",
            f"set '{name}': no label of the task maps to {lost}, so no model could be right on those rows. "
            f"Map a label to each under 'ood.{name}.label_map', or leave these rows out of the set.",
        )

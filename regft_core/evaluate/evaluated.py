"""One finished run as an evaluation sees it: logits and gold labels of every set, and the model if it asks for it.

Numpy is imported here for real, so its version is in the key of what every evaluation finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.errors import RunFailed
from regft_core.kinds import Kind, find
from regft_core.kinds._decision import Decision, decided
from regft_core.lazy import Array
from regft_core.rng import derive

if TYPE_CHECKING:
    from regft_core.data.examples import Example
    from regft_core.runs.finished_model import FinishedModel
    from regft_core.runs.records import PreparedTask


@dataclass(frozen=True)
class EvaluatedSet:
    """One set with what the run said about it, in the order of its file.

    Attributes:
        kind: a file of ``regft_core/kinds``.
        logits: [n, K] as the model gave them, over its own K labels; [n, 1] in the labels' unit for a value.
        gold: [n] indices into ``labels``, sets of them or values, as ``Kind.dtype`` has them.
        examples: [n] with texts and ids.
        labels: names of the set's labels; empty for values.
        to_set: [K] index of the set's label that each of the model's own labels counts as; empty for values.
        decision: how the run's logits become predictions; None: the most probable label.
    """

    name: str
    kind: str
    logits: npt.NDArray[Any]
    gold: npt.NDArray[Any]
    examples: Sequence[Example]
    labels: tuple[str, ...]
    to_set: npt.NDArray[Any]
    decision: Decision | None = None

    def __len__(self) -> int:
        return len(self.gold)

    def take(self, indices: Sequence[int]) -> EvaluatedSet:
        chosen = np.asarray(indices, dtype=np.int64)
        examples = [self.examples[index] for index in indices]
        return replace(self, logits=self.logits[chosen], gold=self.gold[chosen], examples=examples)

    def with_logits(self, logits: npt.NDArray[Any]) -> EvaluatedSet:
        """The same examples under other logits [n, K]."""
        return replace(self, logits=logits)

    @cached_property
    def predictions(self) -> npt.NDArray[Any]:
        """[n] indices into ``labels``, as they were scored, or values."""
        return find(self.kind).predictions(decided(self.decision, self.logits), self.to_set)

    def probabilities(self) -> npt.NDArray[Any]:
        """[n, L] of the labels: softmax of the logits, summed over merged ones; of several labels each by itself."""
        return find(self.kind).scores(self.logits, self.to_set, len(self.labels))

    def confidences(self) -> npt.NDArray[Any]:
        """[n] probability of the prediction; of a set of labels the product over all labels of being in it or not."""
        kind, there = find(self.kind), self.probabilities()
        if kind.one_label:
            return np.asarray(there[np.arange(len(self)), self.predictions])
        decided = np.where(kind.indicators(self.predictions, len(self.labels)), there, 1 - there)
        return np.asarray(decided.prod(axis=1))


def evaluated_set(
    name: str, examples: Sequence[Example], logits: npt.NDArray[Any], task: Mapping[str, Any],
    decision: Decision | None = None,
) -> EvaluatedSet:  # fmt: skip
    """Return the set ``name`` of a task (content of ``task.json``) with a run's logits [n, K]."""
    declared, own = task["sets"].get(name) or {}, list(task["labels"] or ())
    labels = declared.get("labels") or own
    gold = np.asarray([example.label for example in examples], dtype=find(task["kind"]).dtype)
    to_set = label_indices(own, labels, declared.get("label_map"))
    return EvaluatedSet(name, task["kind"], logits, gold, examples, tuple(labels), to_set, decision)


@dataclass(frozen=True)
class OtherRows:
    """Another task: the content of its ``task.json``, its training rows and those of its development set."""

    task: Mapping[str, Any]
    examples: Sequence[Example]
    dev: Sequence[Example]

    def score(self, gold: npt.NDArray[Any], logits: npt.NDArray[Any]) -> float:
        """Its primary metric of ``logits`` [n, K] against ``gold`` [n]; needs ``SCORES = True`` in the file."""
        return primary_score(logits, gold, self.task)


@dataclass(frozen=True)
class EvaluatedRun:
    """One finished run.

    Attributes:
        task: content of ``task.json``; ``labels`` are the model's own, in the order of its outputs.
        options: of the evaluation, an instance of its ``Config``.
        sets: ``dev`` and the out-of-distribution sets by name.
    """

    task: Mapping[str, Any]
    seed: int
    options: Any
    sets: Mapping[str, EvaluatedSet]
    _trained: FinishedModel | None
    _others: Callable[[str], OtherRows] | None = None
    _models: Callable[[str], FinishedModel] | None = None

    @property
    def kind(self) -> str:
        return str(self.task["kind"])

    @property
    def trained(self) -> FinishedModel:
        """The trained model. Raises RuntimeError without ``NEEDS_MODEL``: only then do keys have the code of models."""
        if self._trained is None:
            raise RuntimeError("this evaluation uses the model; say so in its file: NEEDS_MODEL = True")
        return self._trained

    def rows_of(self, task: str) -> OtherRows:
        """Rows of another task; only one that an option named by ``TASKS`` lists, else RuntimeError."""
        if self._others is None:
            raise RuntimeError('this evaluation reads other tasks; name the option that lists them: TASKS = "tasks"')
        return self._others(task)

    def model_of(self, method: str) -> FinishedModel:
        """The finished model of the run of the method that the option named by ``METHOD`` has, else RuntimeError.

        Of the same task, size and seed. Raises Unfit where that run failed or has no model.
        """
        if self._models is None:
            raise RuntimeError('this evaluation looks into another run; name the option that says which: METHOD = "of"')
        return self._models(method)

    def score(self, judged: EvaluatedSet) -> float:
        """The task's primary metric of a set, as the scores have it; needs ``SCORES = True`` in the file."""
        positive = positive_index(self.task, judged.to_set)
        return float(metrics.find(self.task["primary"]).score(judged.gold, judged.predictions, positive))

    @property
    def parts(self) -> list[EvaluatedSet]:
        chosen = [judged for name, judged in self.sets.items() if self.options.sets == "all" or name == "dev"]
        return [self.some(judged, self.options.rows) for judged in chosen]

    def some(self, judged: EvaluatedSet, rows: int) -> EvaluatedSet:
        """At most ``rows`` examples of a set: all, or a draw that is the same for all runs, in their order."""
        if len(judged) <= rows:
            return judged
        draw = np.random.default_rng(derive(0, "evaluation.rows", judged.name)).permutation(len(judged))[:rows]
        return judged.take([int(index) for index in np.sort(draw)])


def require_finite(logits: npt.NDArray[Any], ids: Sequence[str], whose: str, hint: str) -> None:
    """Raise RunFailed, with the first example, where ``logits`` [n, K] of examples with these ids are no numbers."""
    bad = np.atleast_1d(np.logical_not(np.isfinite(logits)).any(axis=1))
    if bad.any():
        rows = f"{int(bad.sum())} of {len(bad)} examples (first: idx {ids[int(bad.argmax())]})"
        raise RunFailed("not-finite", f"{whose}: answers that are NaN or infinite on {rows}\n    -> {hint}")


def require_number(value: float, metric: str, where: str) -> None:
    if not math.isfinite(value):
        hint = f"what is undefined is 0.0; regft test-metric {metric} tries it on such answers"
        raise RunFailed("not-finite", f"the metric {metric} is {value} on {where}\n    -> {hint}")


def label_indices(
    own_labels: Sequence[str], set_labels: Sequence[str], label_map: Mapping[str, str] | None = None
) -> npt.NDArray[np.int64]:
    """Return [K]: for each of the model's own labels, the index of the set's label that it counts as."""
    names = [name if label_map is None else label_map[name] for name in own_labels]
    return np.array([list(set_labels).index(name) for name in names], dtype=np.int64)


def positive_index(task: Mapping[str, Any], to_set: Sequence[int] | npt.NDArray[np.int64]) -> int | None:
    """Index, among a set's labels, of what F1 counts (by default the last own label); None without labels."""
    labels = task["labels"]
    return int(to_set[labels.index(task.get("positive_label") or labels[-1])]) if labels else None


def positive_of(described: PreparedTask, name: str) -> int | None:
    own, declared = described.labels or [], described.sets[name]
    return positive_index(vars(described), label_indices(own, declared.labels or own, declared.label_map))


def constant_score(metric: str, kind: Kind, gold: Array, parts: Sequence[Any], positive: int | None) -> float:
    """Return the best mean over ``parts`` (rows of ``gold``) of one answer to all rows.

    That is ``Kind.constant`` or, for a metric that counts one label, that one where it scores higher.
    """
    found, answers = metrics.find(metric), [kind.constant(gold).astype(kind.dtype, copy=False)]
    if found.needs_positive_label:
        answers.append(np.full_like(answers[0], positive))
    means = [math.fsum(found.score(gold[at], one[at], positive) for at in parts) / len(parts) for one in answers]
    return min(means) if found.lower_is_better else max(means)


#: On fewer rows a run that learned something is often no better than a constant answer: a fold, by bad luck.
ENOUGH_ROWS = 50


def evaluate_run(
    judged_sets: Mapping[str, EvaluatedSet], task: Mapping[str, Any], *, reads_text: bool = True
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return the scores of one run on every set (``records.SetScores``), and its prediction rows, ready for JSON.

    Rows: set -> [{"idx", "label", "prediction", "scores"}]. Labels, predictions and the positive label are the set's.
    ``task`` is the content of ``task.json``. ``reads_text`` is False for a method that answers with a constant on
    purpose, which never counts as collapsed. Raises RunFailed where a metric is no finite number.
    """
    sets, rows, collapsed, kind = dict[str, Any](), dict[str, Any](), None, find(task["kind"])
    for name, judged in judged_sets.items():
        gold = judged.gold.astype(kind.dtype, copy=False)
        predictions, scores = judged.predictions, judged.probabilities()
        positive = positive_index(task, judged.to_set)
        answers, whole = predictions.astype(kind.dtype, copy=False), [slice(None)]
        scored = {metric: metrics.find(metric).score(gold, answers, positive) for metric in task["metrics"]}
        constant = {metric: constant_score(metric, kind, gold, whole, positive) for metric in task["metrics"]}
        for metric, value in (*scored.items(), *constant.items()):
            require_number(value, metric, f"the set {name}")
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


def unfitted_decision(task: Mapping[str, Any], labels: Callable[[], Iterable[Any]]) -> Decision | None:
    """Return how answers of a model to which no decision was fitted become decisions; None: as its kind does it.

    Where every training row (``labels``) has a label of several, so has every answer, if the metric is by offsets.
    """
    kind = find(task["kind"])
    several = kind.has_labels and not kind.one_label and metrics.find(task["primary"]).by_offsets
    return Decision((0.0,) * len(task["labels"]), at_least_one=True) if several and all(labels()) else None


def primary_score(
    logits: npt.NDArray[Any],
    labels: Sequence[int] | Sequence[float] | npt.NDArray[Any],
    task: Mapping[str, Any],
    decision: Decision | None = None,
) -> float:
    """Return the task's primary metric of ``logits`` [n, K] for its own ``labels`` [n]."""
    kind, to_set = find(task["kind"]), np.arange(len(task["labels"] or ()))
    predictions = kind.predictions(decided(decision, logits), to_set).astype(kind.dtype, copy=False)
    gold = np.asarray(labels).astype(kind.dtype)
    return float(metrics.find(task["primary"]).score(gold, predictions, positive_index(task, to_set)))

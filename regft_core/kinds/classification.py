"""Every example has exactly one of the task's labels: one logit per label, cross-entropy, the largest logit wins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from regft_core.kinds._base import Array, Collapse, Declared, Kind
from regft_core.kinds._judging import warn_if_permuted
from regft_core.kinds._reading import read_index
from regft_core.lazy import Tensor, np, torch


class Classification(Kind):
    has_labels = True
    one_label = True
    problem_type = "single_label_classification"
    dtype = "int64"
    label_keys = "'labels' lists every label, 'label_values' maps other spellings, "

    def wrong_labels(self, labels: Sequence[str] | None) -> str | None:
        if labels is None or len(labels) < 2:
            return "a classification task needs 'labels' with at least two names"
        return None

    def read_label(self, value: Any, declared: Declared) -> int:
        return read_index(value, declared)

    def task_loss(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        if weights is None:
            return torch.nn.functional.cross_entropy(logits, labels)
        # Not ``weight=``, which divides by the batch's own sum of weights.
        return (torch.nn.functional.cross_entropy(logits, labels, reduction="none") * weights[labels]).mean()

    def balanced(self, labels: Sequence[int | float], outputs: int) -> tuple[float, ...]:
        """One weight a class; K counts the classes that occur. 1 for a class without a row."""
        counts = Counter(int(label) for label in labels)
        return tuple(len(labels) / (len(counts) * counts[k]) if counts[k] else 1.0 for k in range(outputs))

    def indicators(self, labels: Array, outputs: int) -> Array:
        return labels[:, None] == np.arange(outputs)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

    def predictions(self, logits: Array, to_set: Array) -> Array:
        """The largest own label, then mapped: merging never lets two weak labels outvote a strong one."""
        return to_set[logits.argmax(axis=1)]

    def scores(self, logits: Array, to_set: Array, width: int) -> Array:
        """Softmax probabilities, summed over merged labels, 0 for labels that no own label counts as.

        Their argmax can differ from the prediction.
        """
        values = logits.astype(np.float64)
        exponentials = np.exp(values - values.max(axis=1, keepdims=True))
        merge = np.zeros((len(to_set), width))
        merge[np.arange(len(to_set)), to_set] = 1.0
        return (exponentials / exponentials.sum(axis=1, keepdims=True)) @ merge

    def constant(self, gold: Array) -> Array:
        """The set's most frequent label, the lower index among equals."""
        return np.full(gold.shape, np.bincount(gold).argmax(), dtype=np.int64)

    def warning(self, gold: Array, predictions: Array, names: Sequence[str]) -> str | None:
        return warn_if_permuted(gold, predictions, names)

    def collapsed(self, gold: Array, predictions: Array) -> Collapse | None:
        """``majority``: accuracy is not above the rate of the most frequent label. One gold label shows nothing."""
        if np.all(predictions == predictions[0]):
            return None if np.all(gold == predictions[0]) else "constant"
        most = np.bincount(gold).max()
        return "majority" if most < gold.size and np.sum(gold == predictions) <= most else None

    def shown(self, value: Any, names: Sequence[str]) -> str | float:
        return names[int(value)]

    def answer(self, scores: Sequence[float], labels: Sequence[str]) -> str | float:
        return labels[max(range(len(scores)), key=scores.__getitem__)]


KIND = Classification

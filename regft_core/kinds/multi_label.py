"""Every example has any number of the task's labels: one logit per label, binary cross-entropy, a sigmoid above 0.5.

A label of a row, and a prediction, is a set as the bits of one number: bit k is the k-th of ``labels``. In files a set
is a cell of names (``fast;cheap``), a list of names, or 0 and 1 in a column of each label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from regft_core.kinds._base import Array, Collapse, Declared, Kind, WrongLabel
from regft_core.kinds._reading import as_text, given, listed_labels, read_index
from regft_core.lazy import Tensor, np, torch
from regft_core.metrics._weighted import f1_micro

SEPARATOR = ";"
#: What a cell of a label's own column may say; frames with empty cells are written with a point.
_FLAGS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
#: Bits of a label tensor (int64) that are not its sign.
MOST = 63


class MultiLabel(Kind):
    has_labels = True
    one_label = False
    problem_type = "multi_label_classification"
    dtype = "uint64"
    label_keys = "'labels' lists every label, 'label_values' maps other spellings, columns.label_delimiter cuts cells, "

    def wrong_labels(self, labels: Sequence[str] | None) -> str | None:
        if labels is None or len(labels) < 2:
            return "a multi_label task needs 'labels' with at least two names"
        if len(labels) > MOST:
            return f"a multi_label task has at most {MOST} labels, and there are {len(labels)}"
        if cut := [label for label in labels if SEPARATOR in label]:
            return f"label '{cut[0]}' has a '{SEPARATOR}', which stands between the labels of an answer"
        return None

    def read_label(self, value: Any, declared: Declared) -> int:
        listed = listed_labels(value)
        if listed is None and isinstance(value, Mapping):  # a column of each label: no cell is an object here
            return sum(_flag(cell, column) << bit for bit, (column, cell) in enumerate(value.items()))
        if listed is not None:
            parts = listed
            if len(parts) == len(declared.labels or ()) and all(str(part) in _FLAGS for part in parts):
                raise WrongLabel(f"labels {given(value)}: 0 and 1 of each label, or positions? Write names instead")
            if len(set(map(str, parts))) < len(parts):
                raise WrongLabel(f"labels {given(value)} hold one twice; write each once, by its name")
        elif (text := as_text(value)) is None:
            raise WrongLabel(f"column '{declared.label_column}' has no labels ({given(value)}); write '' for none")
        elif isinstance(value, str):
            parts = [part for part in text.split(declared.label_delimiter) if part.strip()]
        else:
            parts = [value]
        return sum(1 << index for index in {read_index(part, declared) for part in parts})

    def strata(self, labels: Sequence[int | float]) -> list[int]:
        """The rarest label of each row, so that rare labels keep their shares too; -1 for rows without any."""
        counts = Counter(k for label in labels for k in _members(label))
        return [min(_members(label), key=lambda k: (counts[k], k), default=-1) for label in labels]

    def task_loss(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """Binary cross-entropy, a mean over examples and labels; ``weights`` [K, 2]: of absence, of presence."""
        present = (labels[:, None] >> torch.arange(logits.shape[1], device=labels.device)) & 1
        own = None if weights is None else torch.where(present == 1, weights[:, 1], weights[:, 0])
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        return loss(logits, present.to(logits.dtype), weight=own)

    def balanced(self, labels: Sequence[int | float], outputs: int) -> tuple[tuple[float, float], ...]:
        """Of each label n / (2 n_c) for its absence and its presence; 1 for a label of all rows or of none."""
        counts, n = Counter(k for label in labels for k in _members(label)), len(labels)
        return tuple(
            (n / (2 * (n - counts[k])), n / (2 * counts[k])) if 0 < counts[k] < n else (1.0, 1.0)
            for k in range(outputs)
        )

    def indicators(self, labels: Array, outputs: int) -> Array:
        return (labels.astype(np.uint64)[:, None] >> np.arange(outputs, dtype=np.uint64)) & np.uint64(1) == 1

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """[B, K, 2]: of presence and absence of each label."""
        return torch.nn.functional.logsigmoid(torch.stack([logits, -logits], -1))

    def predictions(self, logits: Array, to_set: Array) -> Array:
        """The labels above 0.5; a label of the set is there when one of those that count as it is."""
        bits = np.uint64(1) << to_set.astype(np.uint64)
        return np.bitwise_or.reduce(np.where(logits > 0, bits, np.uint64(0)), axis=1)

    def scores(self, logits: Array, to_set: Array, width: int) -> Array:
        """Sigmoids; of merged labels the largest, 0 for labels that no own label counts as."""
        own = _sigmoid(logits.astype(np.float64))
        found = np.zeros((len(logits), width))
        for column, target in enumerate(to_set):
            found[:, target] = np.maximum(found[:, target], own[:, column])
        return found

    def constant(self, gold: Array) -> Array:
        """The set's most frequent labels, as many as give the largest f1_micro; the lower index among equals."""
        counts = Counter(k for label in gold.tolist() for k in _members(label))
        order = sorted(counts, key=lambda k: (-counts[k], k))
        hits, claimed = np.cumsum([counts[k] for k in order]), len(gold) * np.arange(1, len(order) + 1)
        best = int((2 * hits / (claimed + counts.total())).argmax()) if order else 0
        answer = sum(1 << k for k in order[: best + 1])
        return np.full(gold.shape, answer, dtype=np.uint64)

    def collapsed(self, gold: Array, predictions: Array) -> Collapse | None:
        """``majority``: f1_micro is not above that of ``constant``."""
        if np.all(predictions == predictions[0]):
            return None if np.all(gold == predictions[0]) else "constant"
        rows, weights = np.stack([predictions, self.constant(gold)]), np.ones((1, len(gold)))
        own, alone = f1_micro(gold, rows, weights, None)[0]
        return "majority" if own <= alone else None

    def shown(self, value: Any, names: Sequence[str]) -> str | float:
        return SEPARATOR.join(names[k] for k in _members(value))

    def answer(self, scores: Sequence[float], labels: Sequence[str]) -> str | float:
        return SEPARATOR.join(label for label, score in zip(labels, scores, strict=True) if score > 0.5)


def _members(label: Any) -> list[int]:
    """The bits of a set, the lowest first."""
    bits = int(label)
    return [k for k in range(bits.bit_length()) if bits >> k & 1]


def _flag(cell: Any, column: str) -> int:
    text = (as_text(cell) or "").lower()
    if text not in _FLAGS:
        raise WrongLabel(f"column '{column}' has {given(cell)}; 0 or 1 says whether the row has the label")
    return _FLAGS[text]


def _sigmoid(values: Array) -> Array:
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1 / (1 + small), small / (1 + small))


KIND = MultiLabel

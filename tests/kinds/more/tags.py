"""A kind of a test's own: any number of labels an example, as bits of one number; a file has them as ``good|fast``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regft_core.kinds import Collapse, Declared, Kind, WrongLabel
from regft_core.lazy import np, torch

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    Array = npt.NDArray[Any]


class Tags(Kind):
    has_labels = True
    one_label = False
    problem_type = "multi_label_classification"
    dtype = "int64"
    label_keys = "'labels' lists every tag, "

    def wrong_labels(self, labels: Sequence[str] | None) -> str | None:
        return None if labels else "a tags task needs 'labels'"

    def read_label(self, value: Any, declared: Declared) -> int:
        labels, given = declared.labels or (), [tag for tag in str(value or "").split("|") if tag]
        if unknown := [tag for tag in given if tag not in labels]:
            raise WrongLabel(f"tags {unknown} are none of labels {list(labels)}")
        return sum(1 << labels.index(tag) for tag in set(given))

    def label_counts(self, labels: Sequence[int | float], names: Sequence[str]) -> dict[str, int] | None:
        return {name: sum(int(label) >> index & 1 for label in labels) for index, name in enumerate(names)}

    def indicators(self, labels: Array, outputs: int) -> Array:
        found: Array = (labels[:, None] >> np.arange(outputs)) & 1 == 1
        return found

    def task_loss(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        targets = labels[:, None] >> torch.arange(logits.shape[1], device=labels.device) & 1
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))

    def log_probabilities(self, logits: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(torch.stack([logits, -logits], -1))

    def predictions(self, logits: Array, to_set: Array) -> Array:
        found: Array = np.bitwise_or.reduce((logits > 0) * (1 << to_set), axis=1)
        return found

    def scores(self, logits: Array, to_set: Array, width: int) -> Array:
        found = np.zeros((len(logits), width))
        for column, target in enumerate(to_set):
            found[:, target] = np.maximum(found[:, target], 1 / (1 + np.exp(-logits[:, column].astype(np.float64))))
        return found

    def constant(self, gold: Array) -> Array:
        return np.full(gold.shape, np.bincount(gold).argmax(), dtype=np.int64)

    def collapsed(self, gold: Array, predictions: Array) -> Collapse | None:
        return "constant" if (predictions == predictions[0]).all() else None

    def shown(self, value: Any, names: Sequence[str]) -> str | float:
        return "|".join(name for bit, name in enumerate(names) if int(value) >> bit & 1)

    def answer(self, scores: Sequence[float], labels: Sequence[str]) -> str | float:
        return "|".join(label for label, score in zip(labels, scores, strict=True) if score > 0.5)


KIND = Tags

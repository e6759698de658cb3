"""The answer that ignores the input: the majority class, or the mean target, of the training rows.

The floor under every other score. It answers in place of the model, with the logarithms of the class frequencies (a
value: the mean), so that nothing is read, and no weights are stored, to say the same of every input.

Decisions:
- logarithms of frequencies and no winner marked by hand: their softmax is the best constant prediction also in
  log loss.
- a class without a row counts as half a row; logarithms must be finite.
- several labels of an example: the log odds of each, whose sigmoid is its frequency.
- classes of equal frequency: the first in the order of the labels, as in the majority scores of the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regft_core.hooks.base import Declares, NoOptions, Phase, Regulariser
from regft_core.hooks.declare import Example, FitData, Tensor, Trainee, reads_labels
from regft_core.kinds import find
from regft_core.lazy import Array, np, torch

#: Rows that a class without any counts as.
ABSENT = 0.5


def best_constant(labels: Any, classes: int | None) -> Array:
    """The logits, or the value, that fit all labels best without looking at an input.

    Args:
        labels: [n] classes, or targets.
        classes: number of classes; None for targets.

    Returns:
        [classes] logarithms of the frequencies, or [1], the mean.
    """
    if classes is None:
        return np.asarray([np.mean(np.asarray(labels, dtype=np.float64))])
    counts = np.bincount(np.asarray(labels, dtype=np.int64), minlength=classes).astype(np.float64)
    counts[counts == 0] = ABSENT
    return np.log(counts / counts.sum())


def best_odds(present: Array) -> Array:
    """[K] log odds of each label's frequency, of [n, K] ``present``."""
    counts = np.clip(present.sum(axis=0), ABSENT, len(present) - ABSENT)
    return np.log(counts / (len(present) - counts))


class ConstantAnswer(Regulariser):
    name = "constant_answer"
    off = None  # an answer that depends on the input is another method

    @classmethod
    def declare(cls, options: NoOptions) -> Declares:
        return Declares(reads="nothing", freezes_encoder=True)

    @classmethod
    def check_options(cls, options: NoOptions, phase: Phase) -> list[str]:
        return reads_labels(phase)

    def fit(self, trainee: Trainee, data: FitData) -> None:
        labels = [data.stream.encoded.labels[row] for row in data.stream.rows]
        kind, outputs = find(self.setting.kind), self.setting.num_labels
        if kind.has_labels and not kind.one_label:
            self._answer = best_odds(kind.indicators(np.asarray(labels), outputs))
        else:
            self._answer = best_constant(labels, outputs if kind.has_labels else None)
        if self.setting.class_weights is not None:
            self.marks.append(
                "constant_answer: training.class_weights changes nothing here; the answer is that of the frequencies"
            )

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """``answer``: [classes], or [1]."""
        return {"answer": torch.from_numpy(self._answer)}

    def predict(self, trainee: Trainee | None, kept: Mapping[str, Tensor], examples: Sequence[Example]) -> Array:
        return np.tile(kept["answer"].numpy().astype(np.float32), (len(examples), 1))

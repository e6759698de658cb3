"""The answer that ignores the input: the majority class, or the mean target, of the training rows.

The floor under every other score. The weight of the head's last linear becomes 0 and its bias the log of
the class frequencies (a value: the mean), so that the logits are the same for every input and the result is
an ordinary model.

Decisions:
- the bias is the logarithm of the frequencies and no winner marked by hand: its softmax is the best constant
  prediction also in log loss.
- a class without a row counts as half a row; logarithms must be finite.
- classes of equal frequency: the first in the order of the labels, as in the majority scores of the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regft_core.config.method import Phase
from regft_core.hooks.base import Handed, NoOptions, Regulariser
from regft_core.hooks.checks import reads_labels, takes_no_steps
from regft_core.lazy import np, torch

if TYPE_CHECKING:
    import numpy.typing as npt

    from regft_core.training.fitting import FitData
    from regft_core.training.trainee import Trainee

#: Rows that a class without any counts as.
ABSENT = 0.5


def constant_answer(labels: npt.ArrayLike, classes: int | None) -> npt.NDArray[np.float64]:
    """The bias of a head that answers without looking.

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
    logs: npt.NDArray[np.float64] = np.log(counts / counts.sum())
    return logs


class ConstantHead(Regulariser):
    """Sets the head so that the model answers the same whatever it reads."""

    name = "constant_head"
    Config = NoOptions
    off: ClassVar[dict[str, Any] | None] = None  # a head that answers something else is another method
    edit_order = 100  # like any solved head: two of them in one phase are refused

    @classmethod
    def edits(cls, options: NoOptions) -> frozenset[Literal["weights", "structure"]]:
        return frozenset({"weights"})

    @classmethod
    def freezes_encoder(cls, options: NoOptions) -> bool:
        return True

    @classmethod
    def reads_encoder(cls, options: NoOptions) -> bool:
        return False

    @classmethod
    def check_options(cls, options: NoOptions, phase: Phase) -> list[str]:
        return [*takes_no_steps(phase), *reads_labels(phase)]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        trainee.model.requires_grad_(False)

    def fit(self, trainee: Trainee, data: FitData) -> None:
        from regft_core.models.heads import last_linear

        labels = [data.stream.encoded.labels[row] for row in data.stream.rows]
        answer = constant_answer(labels, None if self.setting.kind == "regression" else self.setting.num_labels)
        name = last_linear(trainee.model, trainee.sites.head, self.setting.num_labels)
        with torch.no_grad():
            trainee.raw(f"{name}.weight").zero_()
            trainee.raw(f"{name}.bias").copy_(torch.from_numpy(answer))

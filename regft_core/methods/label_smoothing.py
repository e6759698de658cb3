"""Label smoothing (Szegedy et al., CVPR 2016).

The target distribution is (1 - smoothing) * label + smoothing * uniform over all classes, so the loss is
(1 - smoothing) * CE + smoothing * mean over classes of -log p. It takes the place of the task's loss in every pass
that has one: in both passes of R-Drop, in all views of TDT, at both levels of a search.

``training.class_weights`` multiply the loss of a row by the weight of its own label.
"""

from __future__ import annotations

from pydantic import Field

from regft_core.hooks.base import Declares, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import Step, Tensor
from regft_core.kinds import find
from regft_core.lazy import torch


class LabelSmoothingConfig(StrictModel):
    smoothing: float = Field(0.1, ge=0, lt=1, description="share of the uniform distribution in the target (epsilon)")


class LabelSmoothing(Regulariser):
    name = "label_smoothing"
    Config = LabelSmoothingConfig
    off = {"smoothing": 0.0}
    sources = {"smoothing": "ours: the customary 0.1; the paper was not at hand to check"}

    @classmethod
    def declare(cls, options: LabelSmoothingConfig) -> Declares:
        return Declares(active=options.smoothing > 0, recordable=True)

    @classmethod
    def check_task(cls, options: LabelSmoothingConfig, task: TaskConfig) -> list[str]:
        if (kind := find(task.kind)).one_label and not kind.ordered:
            return []
        why = "ignores the order of" if kind.ordered else "does not fit"
        return [f"its loss is a cross-entropy, which {why} {task.kind} labels; use it on classification"]

    def task_loss(self, step: Step, logits: Tensor, labels: Tensor) -> Tensor:
        cross_entropy, weights = torch.nn.functional.cross_entropy, step.class_weights
        if weights is None:
            return cross_entropy(logits, labels, label_smoothing=self.options.smoothing)
        each = cross_entropy(logits, labels, label_smoothing=self.options.smoothing, reduction="none")
        return (each * weights[labels]).mean()

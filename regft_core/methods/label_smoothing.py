"""Label smoothing (Szegedy et al., CVPR 2016).

The target distribution is (1 - smoothing) * label + smoothing * uniform over all classes, so the loss is
(1 - smoothing) * CE + smoothing * mean over classes of -log p: to the cross-entropy CE is added
smoothing * (mean over classes of -log p - CE).

``targets: drawn`` (a control; DisturbLabel, Xie et al., CVPR 2016) redraws a label uniformly with probability
``smoothing`` in every step instead: the same loss in expectation, with noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from regft_core.config.schema import StrictModel
from regft_core.config.schema.tasks import TaskConfig
from regft_core.hooks.base import Declares, MainPass, Regulariser
from regft_core.kinds import find
from regft_core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.training.step import Step


class LabelSmoothingConfig(StrictModel):
    """Options of label smoothing."""

    smoothing: float = Field(0.1, ge=0, lt=1, description="share of the uniform distribution in the target (epsilon)")
    targets: Literal["mixed", "drawn"] = Field(
        "mixed", description="drawn: a label is redrawn with probability smoothing instead (a control)"
    )


def smoothing_term(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """What label smoothing adds to the mean cross-entropy of ``logits`` [B, K]."""
    logarithms = torch.log_softmax(logits, -1)
    own = logarithms.gather(1, labels.unsqueeze(1)).squeeze(1)
    return smoothing * (own - logarithms.mean(1)).mean()


class LabelSmoothing(Regulariser):
    """Mixes the labels with the uniform distribution."""

    name = "label_smoothing"
    Config = LabelSmoothingConfig
    off: ClassVar[dict[str, Any]] = {"smoothing": 0.0}
    sources: ClassVar[dict[str, str]] = {
        "smoothing": "ours: the customary 0.1; the paper was not at hand to check",
        "targets": "ours: mixed is the method, drawn its control",
    }

    @classmethod
    def declare(cls, options: LabelSmoothingConfig) -> Declares:
        return Declares(active=options.smoothing > 0, adds_terms=True)

    @classmethod
    def check_task(cls, options: LabelSmoothingConfig, task: TaskConfig) -> list[str]:
        if find(task.kind).one_label:
            return []
        return [f"a {task.kind} task has no distribution over classes that could be smoothed; use it on classification"]

    def terms(self, step: Step, main: MainPass) -> Tensor:
        labels = step.batch.labels
        if self.options.targets == "mixed":
            return smoothing_term(main.logits, labels, self.options.smoothing)
        generator = step.generator("label_smoothing.labels")
        draw = torch.rand(labels.shape, generator=generator, device=labels.device)
        other = torch.randint(self.setting.num_labels, labels.shape, generator=generator, device=labels.device)
        redrawn = torch.where(draw < self.options.smoothing, other, labels)
        return torch.nn.functional.cross_entropy(main.logits, redrawn) - main.loss

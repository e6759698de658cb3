"""Supervised contrastive loss beside the cross-entropy (Gunel et al., ICLR 2021).

The loss is (1 - weight) * CE + weight * SCL. SCL reads one vector u of length 1 for each row of the batch. Row i pulls
the other rows of its class and pushes all others::

    SCL_i = - mean over positives j of log(exp(u_i . u_j / t) / sum over k != i of exp(u_i . u_k / t))

It costs no further pass. No official code was found, so there is no ``variant``. ``temperature`` is t. The
paper's text was not at hand: weight and temperature are what we remember as its best for few labels.

Decisions:
- vector: what the head's pooling gives, before dropout. With the family's own head (``pooling: head``) it is the last
  hidden state of the summary token, as in the paper, before any pooler. For texts encoded separately, it is the vector
  of both texts that the head reads.
- reduction: SCL is the mean over rows, as in the released loss of Khosla et al. (2020), but without its factor
  temperature / 0.07. So ``weight`` means the same at any batch size. As we remember it, Gunel et al. print a sum over
  rows beside a mean cross-entropy: ``reduction: sum``.
- a row without another row of its class counts as zero. With ``mean`` it still counts in the number of rows.
- gradient accumulation: the rows of one micro batch are compared with each other, not with those of the next one. So
  four batches of 8 differ from one of 32.
- ``weight: 1`` is refused, although the paper tries it. Without cross-entropy nothing trains the head.
- with other terms (R-Drop's second cross-entropy) only the cross-entropy of the plain pass gets the weight 1 - weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Description, Flip, MainPass, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import Handed, Step, Tensor, Trainee, reads_labels
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.models.architectures import architecture_of


class SupervisedContrastiveConfig(StrictModel):
    weight: float = Field(0.9, ge=0, lt=1, description="of the contrastive loss (lambda); cross-entropy has the rest")
    temperature: float = Field(0.3, gt=0, description="divides the cosines (tau)")
    reduction: Literal["mean", "sum"] = Field("mean", description="over the rows of the batch")
    labels: Literal["own", "permuted"] = Field(
        "own", description="permuted: positives follow labels that were shuffled in the batch (a control)"
    )


def supervised_contrastive(vectors: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The loss of each row ``[B]`` for vectors ``[B, H]`` of any length and labels ``[B]``; 0 without a positive."""
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    # Not -inf, whose gradient is NaN in a batch of one row.
    scores = (unit @ unit.T / temperature).masked_fill(itself, torch.finfo(unit.dtype).min)
    logs = scores.log_softmax(-1)
    positive = (labels[:, None] == labels[None, :]) & ~itself
    return -logs.masked_fill(~positive, 0.0).sum(-1) / positive.sum(-1).clamp(min=1)


class SupervisedContrastive(Regulariser):
    name = "supervised_contrastive"
    Config = SupervisedContrastiveConfig
    off = {"weight": 0.0}
    controls = {
        "permuted": Flip({"labels": "permuted"}, "positives share no class: labels are shuffled in every batch")
    }
    sources = {
        "weight": "ours: remembered as the paper's best for few labels; the paper was not at hand to check",
        "temperature": "ours: remembered as the paper's best for few labels; the paper was not at hand to check",
        "reduction": "code: HobbitLong/SupContrast losses.py:104; so the weight does not depend on the batch size",
        "labels": "ours: own is the method, permuted its control",
    }

    @classmethod
    def declare(cls, options: SupervisedContrastiveConfig) -> Declares:
        return Declares(
            active=options.weight > 0,
            needs_hidden=True,
            description=Description(
                refused={
                    "mask": "it contrasts the vectors that a pooling head reads, and no such head is there",
                    "windows": "it contrasts one vector of each row, and an example has several",
                }
            ),
        )

    @classmethod
    def check_options(cls, options: SupervisedContrastiveConfig, phase: Phase) -> list[str]:
        return reads_labels(phase) if cls.declare(options).active else []

    @classmethod
    def check_task(cls, options: SupervisedContrastiveConfig, task: TaskConfig) -> list[str]:
        if find(task.kind).one_label:
            return []
        return [f"it draws rows of one class together, and an example of a {task.kind} task is of no single class"]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        model: Any = trainee.model
        #: What the head of a pooled classifier has read in the plain pass ``[B, d]``, before dropout.
        self.read: Tensor | None = None
        if hasattr(model, "parts"):
            model.dropout.register_forward_pre_hook(self._keep)

    def _keep(self, dropout: Any, args: tuple[Tensor]) -> None:
        if self.trainee.running("main"):
            self.read = args[0]

    def terms(self, step: Step, main: MainPass) -> Tensor:
        """Return the term that turns the plain loss into (1 - weight) * CE + weight * SCL."""
        assert main.hidden is not None
        permuted = self.options.labels == "permuted"
        labels = step.shuffled_labels("supervised_contrastive.labels") if permuted else step.batch.labels
        read, self.read = self.read, None
        vectors = summary_vectors(self.trainee.model, main.hidden, step.batch.attention_mask) if read is None else read
        each = supervised_contrastive(vectors.float(), labels, self.options.temperature)
        loss = each.mean() if self.options.reduction == "mean" else each.sum()
        self.diagnostics.read(step, loss=loss)
        return self.options.weight * (loss - main.loss)


def summary_vectors(model: Any, hidden: Tensor, mask: Tensor) -> Tensor:
    """The summary token of each row of last hidden states ``[rows, n, H]``, which the family's own head reads."""
    from regft_core.models.heads import pool

    return pool(hidden.float(), mask, "cls", architecture_of(model.config.model_type).summary)

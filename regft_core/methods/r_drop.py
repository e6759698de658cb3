"""R-Drop: two passes with dropout masks of their own must agree (Liang et al., NeurIPS 2021).

The batch is read twice; the loss is CE(1) + CE(2) + alpha * (KL(p1 || p2) + KL(p2 || p1)) / 2, the KL
averaged over the batch. Gradient flows through both passes. On regression the KL becomes the squared
difference of the two outputs, as in the released code.

Differences between paper and released code (``variant``):
- KL: mean over the batch; released: summed over it while the cross-entropy is averaged, so the weight
  grows with the batch.
- weights: ``alpha``, from 0.1 to 1.0; released: hard-coded 0.5 (regression: 1.0), and, in its RoBERTa
  branch, 0.7 (0.8). ``alpha: null`` takes these.
- cross-entropy: both passes; released: both, but in the RoBERTa branch half of the first pass only.
  The RoBERTa family takes that branch, every other family the BERT branch.

Decisions:
- the sum of both cross-entropies doubles the task's gradient, which Adam does not see but clipping
  does. ``cross_entropy: mean`` (the repository's front page) halves it, ``first`` leaves out the second.
- the second pass is called ``r_drop.second``; with HyPe, noise is drawn anew in both.
- something must make the passes differ: some dropout, or another regulariser's noise. Where both
  dropouts are 0 and nothing else is random, it is refused; a checkpoint that has none is marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Cost, Declares, Description, Flip, Regulariser, StrictModel
from regft_core.hooks.declare import DropoutWish, Handed, MainPass, Step, Tensor, Trainee, reads_labels
from regft_core.kinds import find
from regft_core.schema.method import Phase
from regft_core.training.distances import divergence

#: Hard-coded weights of the released code, (classification, regression), by its two branches.
RELEASED_ALPHA = {"bert": (0.5, 1.0), "roberta": (0.7, 0.8)}


class RDropConfig(StrictModel):
    variant: Literal["paper", "released"] = "paper"
    alpha: float | None = Field(
        None, ge=0, description="weight of the divergence; null: 1.0 (paper) or what the released code says"
    )
    cross_entropy: Literal["sum", "mean", "first"] | None = Field(
        None, description="task loss of both passes, of their mean, or of the first alone; by variant when null"
    )


class RDrop(Regulariser):
    name = "r_drop"
    Config = RDropConfig
    off = {"alpha": 0.0, "cross_entropy": "first"}
    controls = {"no_kl": Flip({"alpha": 0.0}, "two passes without the divergence between them")}
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "alpha": "code: dropreg/R-Drop fairseq_src/examples/roberta/roberta_rdrop_src/loss/reg_cross_entropy.py:32",
        "cross_entropy": (
            "code: dropreg/R-Drop "
            "huggingface_transformer_src/src/transformers/models/bert/modeling_bert.py:1583-1585; both passes "
            "in full"
        ),
    }

    @classmethod
    def declare(cls, options: RDropConfig) -> Declares:
        return Declares(
            active=options.alpha != 0 or options.cross_entropy != "first",
            dropout=DropoutWish(either=True),
            passes=("r_drop.second",),
            description=Description(cost=Cost(2, 2)),
        )

    @classmethod
    def check_options(cls, options: RDropConfig, phase: Phase) -> list[str]:
        if options.variant == "released" and options.cross_entropy is not None and cls.declare(options).active:
            return ["cross_entropy is fixed by the encoder's family in variant: released; remove it"]
        return [] if options.cross_entropy == "first" else reads_labels(phase)

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.branch = "roberta" if trainee.sites.architecture == "roberta" else "bert"

    def terms(self, step: Step, main: MainPass) -> Tensor:
        """Return the terms that make the plain loss that of R-Drop: CE(2) and the weighted divergence."""
        second = step.forward("r_drop.second", draw="r_drop.second")
        divergence = self.divergence(main.logits, second, step.setting.kind)
        self.diagnostics.read(step, divergence=divergence)
        return self.alpha(step.setting.kind) * divergence + self.second_task_loss(step, main, second)

    def second_task_loss(self, step: Step, main: MainPass, second: Tensor) -> Tensor | float:
        """Return the term beside the task loss of the first pass; ``second`` are logits ``[B, K]``."""
        if self.options.variant == "released" and self.branch == "roberta":
            return -0.5 * main.loss
        rule = self.options.cross_entropy or "sum"
        if rule == "first":
            return 0.0
        loss = step.task_loss(second)
        return loss if rule == "sum" else (loss - main.loss) / 2

    def alpha(self, kind: str) -> float:
        """Weight of the divergence: the option, else that of the variant for a kind of task."""
        if self.options.alpha is not None:
            return float(self.options.alpha)
        return RELEASED_ALPHA[self.branch][not find(kind).has_labels] if self.options.variant == "released" else 1.0

    def divergence(self, one: Tensor, two: Tensor, kind: str) -> Tensor:
        """A scalar from ``[B, K]`` logits: half the symmetric KL, or the squared difference on regression."""
        each = divergence(one, two, kind)
        if not find(kind).has_labels:
            return each.mean()
        each = each / 2
        return each.sum() if self.options.variant == "released" else each.mean()

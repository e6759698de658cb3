"""UDA: texts without labels get the answer of the text as it is when part of it is hidden (Xie et al., NeurIPS 2020).

Beside each batch a step reads ``ratio`` times as many texts u without labels. Their answers, without gradient, are
targets q; the same texts with some tokens hidden, a(u), learn them:

    task loss + weight * mean over u of [max p(u) > threshold] * KL(q || p(a(u))),  q = softmax(logits(u) / temperature)

``annealing`` releases the labels step by step (training signal annealing): a labelled row counts only while its own
label has at most the probability 1/K + progress * (1 - 1/K) of K labels, so that few labels are not learned by heart.
``targets: hard`` makes q the most probable label alone: with a high threshold that is the loss of FixMatch (Sohn et
al., NeurIPS 2020, equation 4).

Differences between paper and this implementation:
- augmentation: back-translation, or words of low TF-IDF replaced; here each token of the text becomes the mask token
  with probability ``hide``, which needs no second model. Sohn et al. change images.
- the texts include the labelled ones without their labels, as in both papers.

Decisions:
- both passes over the texts have dropout, as in the released code, with masks of their own.
- gradient accumulation: under ``annealing`` the mean is over the rows of one micro batch that count.
- FixMatch's condition is max p(u) >= threshold; that of UDA is strict. Equality has no weight here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Cost, Declares, Description, Flip, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import Handed, MainPass, Step, Tensor, Trainee, reads_labels
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.models.masking import choose_positions, maskable
from regft_core.training.distances import kl

#: Passes over texts: as they are, and with tokens hidden.
TARGETS, HIDDEN = "uda.targets", "uda.hidden"


class UdaConfig(StrictModel):
    ratio: int = Field(3, ge=1, description="texts without labels in a step for each labelled row")
    weight: float = Field(1.0, ge=0, description="of the loss on texts without labels")
    hide: float = Field(0.15, ge=0, lt=1, description="probability that a token of a text becomes the mask token")
    targets: Literal["soft", "hard"] = Field("soft", description="the answer as it is, or its most probable label")
    temperature: float = Field(0.85, gt=0, description="divides the logits of soft targets; below 1 sharpens them")
    threshold: float = Field(0.0, ge=0, lt=1, description="a text counts if its most probable label is above it")
    annealing: Literal["none", "linear", "log", "exp"] = Field("linear", description="how labels are released")


class Uda(Regulariser):
    name = "uda"
    Config = UdaConfig
    off = {"weight": 0.0, "annealing": "none"}
    controls = {
        "unhidden": Flip(
            {"hide": 0.0},
            "no token is hidden, so dropout alone tells the two passes apart",
            when=lambda options: options.weight > 0,
        )
    }
    sources = {
        "ratio": "code: google-research/uda text/scripts/run_base_uda.sh:30",
        "weight": "code: google-research/uda text/scripts/run_base_uda.sh:34",
        "hide": "ours: the share that masked language models are trained with",
        "targets": "paper: Xie et al. 2020, section 2.2",
        "temperature": "code: google-research/uda text/scripts/train_large_ft_uda_tpu.sh:41",
        "threshold": "ours: every text counts, as in the scripts of the released code",
        "annealing": "code: google-research/uda text/scripts/run_base_uda.sh:31",
    }

    @classmethod
    def declare(cls, options: UdaConfig) -> Declares:
        reads = options.weight > 0
        times = options.ratio if reads else 0
        return Declares(
            active=reads or options.annealing != "none",
            unlabelled=times,
            passes=(TARGETS, HIDDEN) if reads else (),
            description=Description(
                cost=Cost(1 + 2 * times, 1 + times),
                refused={"mask": "the mask token stands for the answer there"},
                exempt={"padding": "which tokens are hidden is drawn for the padded shape"},
            ),
        )

    @classmethod
    def check_options(cls, options: UdaConfig, phase: Phase) -> list[str]:
        if options.targets == "hard" and options.temperature != 1.0:
            return ["temperature sharpens probabilities, and targets: hard has none; set temperature: 1"]
        return reads_labels(phase)

    @classmethod
    def check_task(cls, options: UdaConfig, task: TaskConfig) -> list[str]:
        kind = find(task.kind)
        if kind.one_label and not kind.ordered:
            return []
        return [f"its targets are the probabilities of labels without order, one a text; the kind is {task.kind}"]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        if self.options.weight:
            self.mask_token = trainee.mask_token(self.name)

    def task_loss(self, step: Step, logits: Tensor, labels: Tensor) -> Tensor:
        """The task's loss of logits ``[B, K]``, over the rows whose label is not learned yet under ``annealing``."""
        kind = find(self.setting.kind)
        if self.options.annealing == "none":
            return kind.task_loss(logits, labels, step.class_weights)
        each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        each = each if step.class_weights is None else each * step.class_weights[labels]
        probability = logits.detach().softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1)
        counts = (probability <= released(self.options.annealing, step.index / step.total, logits.shape[1])).float()
        return (each * counts).sum() / counts.sum().clamp(min=1.0)

    def terms(self, step: Step, main: MainPass) -> Tensor | None:
        """The weighted divergence, a scalar; see the head of this file."""
        if not self.options.weight:
            return None
        texts, generator = step.texts(), step.generator("uda.hidden")
        with torch.no_grad():
            answers = step.forward(TARGETS, batch=texts, draw=TARGETS)
        ordinary = maskable(texts, self.setting.keywords)
        chosen = choose_positions(ordinary, self.options.hide, "bernoulli", generator)
        hidden = dataclasses.replace(texts, input_ids=texts.input_ids.masked_fill(chosen, self.mask_token))
        loss, share = self.divergence(answers, step.forward(HIDDEN, batch=hidden, draw=HIDDEN))
        self.diagnostics.read(step, divergence=loss, counted=share)
        return self.options.weight * loss

    def divergence(self, answers: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Two scalars of logits ``[U, K]``: the mean over texts, and the share of texts that count."""
        most, label = answers.softmax(1).max(1)
        counts = (most > self.options.threshold).float()
        if self.options.targets == "hard":
            each = torch.nn.functional.cross_entropy(hidden, label, reduction="none")
        else:
            each = kl(answers / self.options.temperature, hidden)
        return (each * counts).mean(), counts.mean()


def released(schedule: str, progress: float, labels: int) -> float:
    """The probability of its own label up to which a row counts, after a share ``progress`` of the steps.

    Schedules of Xie et al., 2020, section 3 (training signal annealing); ``labels``: how many there are.
    """
    share = {"linear": progress, "log": 1 - math.exp(-5 * progress), "exp": math.exp(5 * (progress - 1))}[schedule]
    return share * (1 - 1 / labels) + 1 / labels

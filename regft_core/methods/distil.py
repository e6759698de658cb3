"""Distillation: a student learns the answers of a teacher (Hinton, Vinyals and Dean, 2015, section 2).

The teacher is an earlier phase, perhaps of another encoder (``phases.teacher.model``). Its logits z_t for the student's
training rows are computed once, without dropout. With the student's logits z_s the loss is

    (1 - weight) * task loss + weight * T^2 * KL(softmax(z_t / T) || softmax(z_s / T)),  T = temperature

which differs by a constant from the cross-entropy with soft targets. T^2 keeps the size of its gradient, as in the
paper. With several labels it is the mean of a KL for each label, as the task's loss is; for values it is the squared
difference, which has no temperature.

With ``weight: 1`` no label is read, so the rows can be without labels (``data: {size: full, labels: false}``).

``targets: hard`` learns the most probable label of the teacher, not its probabilities: self-training with
pseudo-labels (Lee, 2013, ICML workshop on representation learning): there T is 1, and the divergence is the
cross-entropy. With a ``threshold`` only rows count whose most probable label the teacher gives a higher probability;
the mean is over all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import Handed, MainPass, Step, Tensor, Trainee
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.schema import Name


class DistilConfig(StrictModel):
    """Options of distillation."""

    teacher: Name = Field("teacher", description="the earlier phase whose answers are learned")
    temperature: float = Field(2.0, gt=0, description="divides the logits of both")
    weight: float = Field(0.9, ge=0, le=1, description="of the teacher's answers; the rest is that of the labels")
    targets: Literal["soft", "hard"] = Field("soft", description="hard: the teacher's most probable label alone")
    threshold: float = Field(0.0, ge=0, lt=1, description="a row counts if that label is more probable to the teacher")


class Distil(Regulariser):
    """Mixes the task's loss with the divergence from the teacher's answers."""

    name = "distil"
    Config = DistilConfig
    off: ClassVar[dict[str, Any]] = {"weight": 0.0}
    sources: ClassVar[dict[str, str]] = {
        "teacher": "ours: the name of the phase",
        "temperature": "ours: 2, a mild one, since two labels have no small probabilities that would be worth more",
        "weight": "ours: 0.9; section 2 found a considerably lower weight of the labels best, and names none",
        "targets": "paper: Hinton et al. 2015, section 2",
        "threshold": "ours: every row counts, as in both papers",
    }

    @classmethod
    def declare(cls, options: DistilConfig) -> Declares:
        active = options.weight > 0
        return Declares(active=active, needs={options.teacher: "answers"} if active else {}, adds_terms=True)

    @classmethod
    def check_options(cls, options: DistilConfig, phase: Phase) -> list[str]:
        problems = []
        if not (phase.data.labels or options.weight in (0.0, 1.0)):
            mixes = f"weight: {options.weight:g} mixes in labels, which data.labels: false hides; set weight: 1"
            problems.append(mixes)
        if options.targets == "hard" and options.temperature != 1.0:
            problems.append("temperature softens probabilities, and targets: hard has none; set temperature: 1")
        return problems

    @classmethod
    def check_task(cls, options: DistilConfig, task: TaskConfig) -> list[str]:
        if (options.targets == "soft" and not options.threshold) or find(task.kind).one_label:
            return []
        return [f"targets: hard and threshold need the probabilities of one label a text; the kind is {task.kind}"]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        answers = handed[self.options.teacher].answers
        assert answers is not None
        learned = answers if trainee.scale is None else trainee.scale.learned(answers)
        self.answers = learned.to(trainee.device)

    def terms(self, step: Step, main: MainPass) -> Tensor:
        soft = self.divergence(self.answers[step.batch.indices], main.logits)
        self.diagnostics.read(step, divergence=soft)
        return self.options.weight * (soft - main.loss)

    def divergence(self, teacher: Tensor, student: Tensor) -> Tensor:
        """A scalar of outputs ``[B, K]``, a mean over examples; see the head of this file."""
        from regft_core.training.distances import divergence, kl

        kind, options = find(self.setting.kind), self.options
        if options.targets == "hard":
            each = torch.nn.functional.cross_entropy(student, teacher.argmax(1), reduction="none")
        else:
            scale = options.temperature if kind.has_labels else 1.0
            each = divergence(teacher / scale, student / scale, self.setting.kind, kl) * scale**2
        if options.threshold:
            each = each * (teacher.softmax(1).amax(1) > options.threshold)
        return each.mean() if kind.one_label or not kind.has_labels else each.mean() / student.shape[1]

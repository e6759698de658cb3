"""Distillation: a student learns the answers of a teacher (Hinton, Vinyals and Dean, 2015, section 2).

The teacher is an earlier phase, perhaps of another encoder (``phases.teacher.model``). Its logits z_t for the student's
training rows are computed once, without dropout. With the student's logits z_s the loss is

    (1 - weight) * task loss + weight * T^2 * KL(softmax(z_t / T) || softmax(z_s / T)),  T = temperature

which differs by a constant from the cross-entropy with soft targets. T^2 keeps the size of its gradient, as in the
paper. For values it is the squared difference, which has no temperature.

With ``weight: 1`` no label is read, so the rows can be without labels (``data: {size: full, labels: false}``).

``targets: hard`` learns the most probable label of the teacher, not its probabilities: self-training with
pseudo-labels (Lee, 2013, ICML workshop on representation learning): there T is 1, and the divergence is the
cross-entropy. With a ``threshold`` only rows count whose most probable label the teacher gives a higher probability;
the mean is over all rows.

``hidden`` also pulls the student's hidden states toward the teacher's: hidden * (1 - cos(W h_s, h_t)) is added, the
mean over examples. A cosine is the loss of DistilBERT (Sanh et al., 2019, section 3), and half the squared distance of
vectors of length 1, as in PKD (Sun et al., 2019). W is there where the widths differ (TinyBERT, Jiao et al., 2020): a
linear map, trained with the student, which no export has. One difference from all three: h is the mean of the last
hidden states over an example's tokens, since teacher and student may split a text into other tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Flip, ParameterGroup, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import Handed, MainPass, Need, Step, Tensor, Trainee
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.schema import Name
from regft_core.training.distances import divergence, kl


class DistilConfig(StrictModel):
    teacher: Name = Field("teacher", description="the earlier phase whose answers are learned")
    temperature: float = Field(2.0, gt=0, description="divides the logits of both")
    weight: float = Field(0.9, ge=0, le=1, description="of the teacher's answers; the rest is that of the labels")
    targets: Literal["soft", "hard"] = Field("soft", description="hard: the teacher's most probable label alone")
    threshold: float = Field(0.0, ge=0, lt=1, description="a row counts if that label is more probable to the teacher")
    hidden: float = Field(0.0, ge=0, description="weight of the distance from the teacher's hidden states")
    map_learning_rate: float = Field(1e-3, gt=0, description="of the map between widths, which begins at random")


class Distil(Regulariser):
    name = "distil"
    Config = DistilConfig
    off = {"weight": 0.0, "hidden": 0.0}
    controls = {"answers": Flip({"hidden": 0.0}, "the teacher's answers alone")}
    sources = {
        "teacher": "ours: the name of the phase",
        "temperature": "ours: 2, a mild one, since two labels have no small probabilities that would be worth more",
        "weight": "ours: 0.9; section 2 found a considerably lower weight of the labels best, and names none",
        "targets": "paper: Hinton et al. 2015, section 2",
        "threshold": "ours: every row counts, as in both papers",
        "hidden": "ours: answers alone, as in Hinton et al. 2015",
        "map_learning_rate": "ours: the encoder's own rate would leave the map at random in few steps",
    }

    @classmethod
    def declare(cls, options: DistilConfig) -> Declares:
        if not (options.weight or options.hidden):
            return Declares(active=False)
        what: Need = "hidden" if options.hidden else "answers"
        return Declares(needs={options.teacher: what}, needs_hidden=what == "hidden")

    @classmethod
    def check_options(cls, options: DistilConfig, phase: Phase) -> list[str]:
        problems = []
        if not (phase.data.labels or options.weight == 1.0):
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
        answers, states = (teacher := handed[self.options.teacher]).answers, teacher.hidden
        assert answers is not None
        learned = answers if trainee.scale is None else trainee.scale.learned(answers)
        self.answers = learned.to(trainee.device)
        self.map: Any = None
        if states is None:
            return
        config: Any = trainee.model.config
        self.states = states.to(trainee.device)
        if config.hidden_size != states.shape[1]:
            self.map = trainee.attach_linear("distil", "distil.map", states.shape[1], bias=False)

    def parameter_groups(self) -> list[ParameterGroup]:
        if self.map is None:
            return []
        return [ParameterGroup({"attached.distil.weight": self.map.weight}, self.options.map_learning_rate)]

    def terms(self, step: Step, main: MainPass) -> Tensor:
        soft = self.divergence(self.answers[step.batch.indices], main.logits)
        self.diagnostics.read(step, divergence=soft)
        added = self.options.weight * (soft - main.loss)
        if not self.options.hidden:
            return added
        assert main.hidden is not None
        distance = self.distance(self.states[step.batch.indices], step.batch.mean(main.hidden))
        self.diagnostics.read(step, distance=distance)
        return added + self.options.hidden * distance

    def distance(self, teacher: Tensor, student: Tensor) -> Tensor:
        """1 - cosine of hidden states ``[B, H_t]`` and, mapped, ``[B, H_s]``: a scalar, the mean over examples."""
        mapped = student if self.map is None else student @ self.map.weight.T
        return (1 - torch.nn.functional.cosine_similarity(mapped, teacher)).mean()

    def divergence(self, teacher: Tensor, student: Tensor) -> Tensor:
        """A scalar of outputs ``[B, K]``, a mean over examples; see the head of this file."""
        kind, options = find(self.setting.kind), self.options
        if options.targets == "hard":
            each = torch.nn.functional.cross_entropy(student, teacher.argmax(1), reduction="none")
        else:
            scale = options.temperature if kind.has_labels else 1.0
            each = divergence(teacher / scale, student / scale, self.setting.kind, kl) * scale**2
        if options.threshold:
            each = each * (teacher.softmax(1).amax(1) > options.threshold)
        return each.mean()

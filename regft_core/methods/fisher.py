"""The Fisher information of Child-Tuning-D (Xu et al., EMNLP 2021): which entries matter for the task.

Measured before any step, in a phase of its own: F is the mean over the training rows of the squared
gradient of the loss, entry by entry (the diagonal of the empirical Fisher information). The share of
the entries with the largest F, over all masked tensors together, is handed on as a mask; an entry is
chosen when F is at least the (1 - share) quantile, so ties may add some.

Differences between paper and released code (``variant``):
- squared is the gradient of one example; released: the mean gradient of a mini-batch.
- nothing is clipped; released: the gradient of every tensor is first clipped to ``training.clip_norm``.
- dropout is off while measuring; released: on (so are all perturbations of the forward pass).

Decisions:
- masked are the tensors inside the encoder's layers, biases and norms included, as in the released code
  (which takes every parameter whose name contains "layer"); embeddings, pooler and head are always trained.
- the head is the newly drawn one of fine-tuning. Regression takes gradients of the squared error.
- the pass over all rows is no step; ``fit_cost`` declares it: what an epoch of plain fine-tuning over them costs in
  passes (one by one, so in seconds it is slower).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regft_core.errors import RunFailed
from regft_core.hooks.base import Cost, Declares, Description, Flip, Phase, Regulariser, StrictModel, Variant
from regft_core.hooks.declare import FitData, Tensor, Trainee, reads_labels
from regft_core.lazy import torch
from regft_core.training.chunks import quantile_cut


class FisherConfig(StrictModel):
    variant: Variant = "paper"
    share: float = Field(0.3, gt=0, le=1, description="share of the entries that stay trained (p_D)")
    scores: Literal["information", "random"] = Field("information", description="random: as many entries are drawn")


class Fisher(Regulariser):
    name = "fisher"
    Config = FisherConfig
    off = None  # it changes nothing by itself
    controls = {"random": Flip({"scores": "random"}, "entries are drawn instead of chosen by their Fisher information")}
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "share": "code: alibaba/AliceMind ChildTuning/run.sh:5",
        "scores": "ours: information is the method, random its control",
    }

    @classmethod
    def declare(cls, options: FisherConfig) -> Declares:
        return Declares(
            trains_encoder=True,
            description=Description(
                fit_cost=Cost(1, 1) if options.scores == "information" else Cost(0, 0),
                refused={"fp16": "gradients are squared without loss scaling and underflow"},
            ),
        )

    @classmethod
    def check_options(cls, options: FisherConfig, phase: Phase) -> list[str]:
        problems = []
        if phase.name == "finetune":
            problems.append("it only measures; use it in an earlier phase and name that phase in child_tuning.mask")
        elif phase.training.epochs:
            problems.append("it measures at the start and takes no steps; give the phase 'training: {epochs: 0}'")
        if phase.members > 1:
            problems.append("masks of several members cannot be averaged; remove repeat")
        return problems + (reads_labels(phase) if options.scores == "information" else [])

    def fit(self, trainee: Trainee, data: FitData) -> None:
        """Set ``masks`` by name of the tensor."""
        drawn = self.options.scores == "random"
        values = self.draws(trainee) if drawn else self.information(trainee, data)
        try:
            cut = quantile_cut(list(values.values()), 1 - self.options.share)
        except ValueError as error:
            raise RunFailed(
                "not-finite",
                f"the Fisher information is not finite: {error}\n"
                "    -> lower the learning rate of the phase before, or use precision: fp32",
            ) from error
        self.masks = {name: value >= cut for name, value in values.items()}
        kept = sum(int(mask.sum()) for mask in self.masks.values())
        self.diagnostics.log("fisher.kept_share", 0, kept / sum(mask.numel() for mask in self.masks.values()))
        self.diagnostics.log("fisher.threshold", 0, cut)

    def draws(self, trainee: Trainee) -> dict[str, Tensor]:
        return {
            name: torch.rand(p.shape, generator=trainee.generator("fisher.draws", name), device=p.device)
            for name, p in layer_parameters(trainee).items()
        }

    def information(self, trainee: Trainee, data: FitData) -> dict[str, Tensor]:
        """F of every trained tensor inside the layers; dropout as the variant has it."""
        released, limit = self.options.variant == "released", self.setting.training.clip_norm
        parameters = layer_parameters(trainee)
        found = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        size = self.setting.training.batch_size if released else 1
        batches = -(-len(data.stream.rows) // size)
        training = trainee.model.training
        trainee.model.train(released)
        try:
            for index, batch in enumerate(data.sequential(size)):
                step = data.step(batch, index)
                gradients = step.gradients(step.task_loss(step.forward()), list(parameters.values()))
                for value, gradient in zip(found.values(), gradients, strict=True):
                    if released and limit is not None:  # each tensor to the protocol's norm
                        gradient.mul_(torch.clamp(limit / (torch.linalg.vector_norm(gradient) + 1e-6), max=1.0))
                    value.addcmul_(gradient, gradient, value=1 / batches)
        finally:
            trainee.model.train(training)
        return found

    def hand(self, trainee: Trainee) -> dict[str, Tensor]:
        return {f"mask/{name}": mask for name, mask in self.masks.items()}


def layer_parameters(trainee: Trainee) -> dict[str, torch.nn.Parameter]:
    """Trained tensors inside the encoder's layers by plain name, biases and norms included."""
    named = ((name, parameter) for name, parameter in trainee.named_raw() if name.startswith(trainee.layer_prefixes))
    return {name: parameter for name, parameter in named if parameter.requires_grad}

"""L2-SP: weight decay toward the pretrained weights (Li et al., ICML 2018).

The penalty strength / 2 * ||w - w0||^2 of all pretrained tensors takes the place of their weight decay.

Decisions:
- ``form: loss`` is the paper's: the penalty is part of the loss, so Adam rescales its gradient and clipping sees it.
  ``form: decoupled`` shrinks the distance by learning rate * strength after each step, as AdamW's decay does with
  the weights themselves (it needs much larger strengths).
- the strength 0.01 is the default of the code released for images, where SGD takes the penalty as it is. Under Adam
  it is weak: on the default encoder its gradient is about 0.5% of the task's. Tune it, or take ``form: decoupled``.
- the penalty reads no pass, so it is added to the loss of any step program, once per optimiser step.
- layers that another method draws anew (Re-init) are new like the head: they are not pulled and keep the
  protocol's weight decay.
- biases and norms are pulled like all others: the paper's vector holds every pretrained weight. (The
  released code pulls weights only by default; a mode of it pulls all.)
- the new head keeps the protocol's weight decay, which has the part of the paper's second term.
- ``toward: start`` pulls toward where the phase started, for instance a model of another task; ``zero`` (a control)
  is the same penalty on the weights themselves, the paper's own opponent L2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Flip, Handed, ParameterGroup, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Step, Tensor, Trainee
from regft_core.lazy import torch
from regft_core.training.chunks import chunked


class L2SpConfig(StrictModel):
    strength: float = Field(0.01, ge=0, description="of the penalty (alpha)")
    form: Literal["loss", "decoupled"] = Field("loss", description="a term of the loss, or a pull after the step")
    toward: Literal["checkpoint", "start", "zero"] = Field(
        "checkpoint", description="what the weights are pulled to; start: as the phase found them"
    )


def penalty(weights: list[Tensor], targets: list[Tensor] | None, strength: float) -> Tensor:
    """strength / 2 * ||w - target||^2 over all tensors; without targets the distance to 0."""
    if targets is None:
        return 0.5 * strength * torch.stack([weight.square().sum() for weight in weights]).sum()
    from regft_core.training.update_rules import squared_distance

    return 0.5 * strength * squared_distance(weights, targets)


def pull(weights: list[Tensor], targets: list[Tensor] | None, share: float | Tensor) -> None:
    """w <- w - share * (w - target), in place."""
    for index, weight in enumerate(weights):
        for part, to in chunked(weight, weight if targets is None else targets[index]):
            part.sub_(share * (part if targets is None else part - to))


class L2Sp(Regulariser):
    name = "l2_sp"
    Config = L2SpConfig
    off = {"strength": 0.0}
    controls = {"zero": Flip({"toward": "zero"}, "weights are pulled to zero instead of to the pretrained ones")}
    sources = {
        "strength": "code: holyseven/TransferLearningClassification run_classification/run_exp.py:36; for images",
        "form": "code: holyseven/TransferLearningClassification model/network_base.py:154-156; a term of the loss",
        "toward": "code: holyseven/TransferLearningClassification model/network_base.py:153-154",
    }

    @classmethod
    def declare(cls, options: L2SpConfig) -> Declares:
        return Declares(active=options.strength > 0, anchors=() if options.toward == "zero" else (options.toward,))

    @classmethod
    def check_options(cls, options: L2SpConfig, phase: Phase) -> list[str]:
        step = phase.training.learning_rate * options.strength
        if options.form == "decoupled" and step >= 2:
            return [
                f"strength {options.strength:g} times the learning rate {phase.training.learning_rate:g} is {step:g}; "
                "from 2 on every step overshoots the target by more than the distance; lower strength"
            ]
        return []

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self._new = frozenset(trainee.new)

    def _pulled(self) -> dict[str, torch.nn.Parameter]:
        """The pretrained tensors that are trained, by plain name."""
        return {n: p for n, p in self.trainee.named_raw() if n not in self._new and p.requires_grad}

    def parameter_groups(self) -> list[ParameterGroup]:
        """Pretrained tensors lose the plain decay, whose place the pull takes."""
        pulled = self._pulled()
        return [ParameterGroup(pulled, weight_decay=0.0)] if pulled else []

    def _targets(self, names: list[str]) -> list[Tensor] | None:
        if self.options.toward == "zero":
            return None
        anchor = self.trainee.anchor(self.options.toward)
        return [anchor[name] for name in names]

    def penalty(self, step: Step) -> Tensor | None:
        pulled = self._pulled() if self.options.form == "loss" else {}
        if not pulled:
            return None
        term = penalty(list(pulled.values()), self._targets(list(pulled)), self.options.strength)
        self.diagnostics.read(step, penalty=term)
        return term

    def observe_gradients(self, step: Step) -> None:
        """Note whether the scaler of fp16 takes the step: one that it skips has no pull either, as it has no decay."""
        self._taken = step.finite() if self.options.form == "decoupled" else None

    def pull_weights(self, step: Step) -> None:
        """Each tensor by its own learning rate: w <- w - rate * strength * (w - target)."""
        if self.options.form != "decoupled":
            return
        assert step.optimizer is not None
        pulled, taken = self._pulled(), 1.0 if self._taken is None else self._taken
        with torch.no_grad():
            for group in step.optimizer.param_groups:
                share = float(group["lr"]) * self.options.strength
                names = [name for name in group["names"] if name in pulled]
                targets = self._targets(names)
                pull([pulled[name] for name in names], targets, share * taken)

"""SAGE: learning rates guided by sensitivity (Liang et al., ICLR 2022).

The sensitivity of an entry is I = |weight * gradient|, A its moving average. The step of the base
optimiser is multiplied by |I - A| / (A + eps^2): entries whose sensitivity changes, or is small, take
large steps. A already includes the present I. Good learning rates are 2 to 5 times those of the base.

Differences between paper and released code (``variant``):
- weight decay: decoupled, at the scheduled rate, not multiplied; released: under Adamax inside the step
  that is multiplied, under AdamW at the rate without its schedule.
- released Adamax does not correct the bias of its first moment.
- epsilon under AdamW: added to the root of the corrected second moment; released: of the uncorrected one, so it
  counts about 30 times as much in the first step.

Decisions:
- the average starts at 0; AdamW's form corrects its bias, Adamax's does not (so the first factor is
  decay / (1 - decay) everywhere under Adamax, and 0 under AdamW).
- multiplied are weights and biases inside the layers without norms; everything else gets the base rule.
- the sensitivity is read off the gradient after clipping, at the weights before the update; beside a gradient mask
  (Child-Tuning, DPS), off the gradient before the mask.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Flip, Regulariser, StrictModel, TrainingConfig, Variant
from regft_core.hooks.declare import Step
from regft_core.lazy import torch


class SageConfig(StrictModel):
    variant: Variant = "paper"
    base: Literal["adamax", "adamw"] = Field("adamax", description="the optimiser whose steps are multiplied")
    decay: float = Field(0.75, ge=0, lt=1, description="of the moving average of the sensitivity (beta 3)")
    multiplier: Literal["sensitivity", "mean", "none"] = Field(
        "sensitivity", description="mean: every entry gets the mean factor of its tensor (a control); none: the base"
    )


class Sage(Regulariser):
    name = "sage"
    Config = SageConfig
    off = {"multiplier": "none"}
    controls = {
        "mean": Flip({"multiplier": "mean"}, "every entry of a tensor gets the mean factor of its tensor"),
        "no_multiplier": Flip({"multiplier": "none"}, "plain steps of the same optimiser"),
    }
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "base": "code: cliang1453/SAGE scripts/train_mnli_usadamax.sh:24",
        "decay": "code: cliang1453/SAGE train.py:157; the one released script takes 0.85",
        "multiplier": "ours: sensitivity is the method, mean its replacement",
    }

    @classmethod
    def declare(cls, options: SageConfig) -> Declares:
        multiplies = options.multiplier != "none"
        return Declares(
            active=multiplies,
            optimizer=f"sage_{options.base}" if multiplies else options.base,
            gradients_at="after_clip",
        )

    def build_optimizer(self, groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer:
        from regft_core.training.update_rules import SensitivityGuided

        self._optimizer = SensitivityGuided(groups, self.trainee.sites.perturbable, training, self.options)
        return self._optimizer

    def observe_gradients(self, step: Step) -> None:
        """The sensitivity where a mask follows, which would hide it from the optimiser."""
        if not step.masked:
            return
        with torch.no_grad():
            for name in self.trainee.sites.perturbable:
                gradient = step.gradient(name)
                if gradient is not None:
                    self._optimizer.observed[name] = (step.trainee.raw(name) * gradient).abs_()

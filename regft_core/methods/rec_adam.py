"""RecAdam: recall the pretrained weights while learning the task (Chen et al., EMNLP 2020).

An Adam whose objective moves from "stay at the pretrained weights" to the task. In step t, with
lambda(t) = 1 / (1 + exp(-rate * (t - midpoint))), pretrained tensors take
    w <- w - lr * lambda * m / (sqrt(v) + eps)
    w <- w - lr * (1 - lambda) * strength * (w - w0)
and then weight decay. The new head takes plain Adam steps (lambda = 1, no pull).

Differences between paper and released code: none in the update but epsilon, which the released code adds to the root of
v before the bias correction (about 30 times as much in the first step), here after it, as in AdamW. By default the
released script starts from random weights and has the pretrained ones as anchor only (``start: random``); the paper
runs both.

Decisions:
- midpoint and rate are counted in steps of runs of thousands of steps. Both commands of the release take rate 0.1 and
  midpoint 1000; its code defaults to 0.5 and 250. Left out here, they follow the length of the run: a quarter of its
  steps, and 25 / midpoint. That is softer than the release (100 and 125 / midpoint), which would switch within a few
  steps of a short run.
- a pooler that the checkpoint lacks is new, so it is treated as head; the released code would pull it to its draw.
  So are layers that another method draws anew (Re-init).
- likewise the strength: left out, each full pull closes a tenth of the distance, as the published 5000 does at the
  published learning rate of 2e-5. From a strength of 2 / learning rate on, the pull would diverge; it is refused.
- t counts optimiser steps from 1. Bias correction is as in AdamW.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Flip, Handed, Phase, Regulariser, StrictModel, TrainingConfig
from regft_core.hooks.declare import Step, Trainee
from regft_core.lazy import torch
from regft_core.rng import derive


class RecAdamConfig(StrictModel):
    """Options of RecAdam; in parentheses the symbols of the released code."""

    strength: float | None = Field(
        None, ge=0, description="of the pull to the pretrained weights (gamma); null: 0.1 / learning rate"
    )
    annealing: Literal["sigmoid", "linear", "constant"] = "sigmoid"
    midpoint: int | None = Field(
        None, ge=1, description="step at which lambda is 1/2, or 1 if linear (t0); null: a quarter of the steps"
    )
    rate: float | None = Field(None, gt=0, description="steepness per step of the sigmoid (k); null: 25 / midpoint")
    start: Literal["pretrained", "random"] = Field("pretrained", description="random: only the anchor is pretrained")


#: Share of the distance that a full pull closes where no strength is given: 5000 x 2e-5.
PULL = 0.1


def task_share(step: int, total: int, options: RecAdamConfig) -> float:
    """lambda of the 1-based ``step`` of ``total``: the weight of the task's own update."""
    if options.annealing == "constant":
        return 1.0
    midpoint = max(1.0, total / 4) if options.midpoint is None else float(options.midpoint)
    if options.annealing == "linear":
        return min(1.0, step / midpoint)
    rate = 25 / midpoint if options.rate is None else options.rate
    return 0.5 * (1 + math.tanh(0.5 * rate * (step - midpoint)))


class RecAdam(Regulariser):
    name = "rec_adam"
    Config = RecAdamConfig
    off = {"annealing": "constant"}
    controls = {
        "no_pull": Flip({"strength": 0.0}, "no pull to the pretrained weights; steps annealed as in the method")
    }
    sources = {
        "strength": "code: Sanyuan-Chen/RecAdam README.md:113; 5000 at the learning rate 2e-5 of line 103",
        "annealing": "code: Sanyuan-Chen/RecAdam README.md:110",
        "midpoint": "ours: a quarter of the steps; the release's commands take step 1000 of 5336 and of 9000",
        "rate": "ours: softer than the release (100 / midpoint, 125 as its default), for short runs",
        "start": "ours: as every other method; the release has a flag for it (run_glue_with_RecAdam.py:663)",
    }

    @classmethod
    def declare(cls, options: RecAdamConfig) -> Declares:
        recalls = options.annealing != "constant"
        return Declares(
            active=recalls,
            anchors=("checkpoint",),
            edits=("weights",) if options.start == "random" else (),
            edit_order=-20,  # random weights come before anything else that changes weights
            optimizer=cls.name if recalls else None,
        )

    @classmethod
    def check_options(cls, options: RecAdamConfig, phase: Phase) -> list[str]:
        problems = []
        if options.annealing == "constant":
            idle = "annealing: constant pulls nowhere, so start: random would throw the pretraining away"
            return [idle] if options.start == "random" else []
        if options.annealing == "linear" and options.rate is not None:
            problems.append("rate is the steepness of the sigmoid; remove it with annealing: linear")
        step = phase.training.learning_rate * (options.strength or 0.0)
        if step >= 2:
            problems.append(
                f"strength {options.strength:g} times the learning rate {phase.training.learning_rate:g} is {step:g}; "
                "from 2 on every pull overshoots the pretrained weights by more than the distance; lower one of them"
            )
        return problems

    def edit_weights(self, trainee: Trainee) -> None:
        """Draw all pretrained tensors anew; the head stays as it was drawn."""
        if self.options.start != "random":
            return
        from regft_core.models.load import draw_parameters

        head = [trainee.raw(name) for name in trainee.sites.head]
        seed = derive(trainee.seed, trainee.phase, "rec_adam.start")
        draw_parameters([trainee.model], trainee.model.config, seed, keep=head)

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        anchor, new = trainee.anchor("checkpoint"), trainee.new
        self._anchors = {name: value for name, value in anchor.items() if name not in new}

    def build_optimizer(self, groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer:
        from regft_core.training.update_rules import RecallAdam

        given = self.options.strength
        strength = PULL / training.learning_rate if given is None else given
        self._optimizer = RecallAdam(groups, self._anchors, training, strength)
        return self._optimizer

    def before_update(self, step: Step) -> None:
        """Tell the optimiser where between recalling and learning this step lies."""
        share = task_share(step.index + 1, step.total, self.options)
        for group in self._optimizer.param_groups:
            group["task_share"] = share
        if step.index % 10 == 0:
            self.diagnostics.log("rec_adam.task_share", step.index, share)

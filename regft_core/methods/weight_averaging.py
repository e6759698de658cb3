"""Averages of the weights along training: stochastic weight averaging and exponential moving averages.

After the last step the average takes the place of the weights; training itself does not see it.
- ``average: equal`` (SWA; Izmailov et al., UAI 2018): the mean of the weights after every ``every``-th step from the
  share ``begin`` of the run on.
- ``average: exponential`` (EMA; Polyak and Juditsky, 1992, in the form that most code uses): after step t,
  mean <- d * mean + (1 - d) * w with d = min(decay, t / (t + 9)), from the first step on.

Decisions:
- SWA averages at the end of epochs under a cyclical or constant rate. Small data have few epochs, so steps are counted
  here; the schedule is the protocol's (the shipped YAMLs take a constant one).
- the growing d keeps the starting weights, which have learned nothing, from dominating short runs; d = 0.1 after
  the first step, so 10% of the average is then the starting point, and less after every further one.
- averaged is every tensor that the optimiser steps. LayerNorm has no running statistics, so nothing is recomputed.
- averages are kept in fp32. A GPU run holds one more copy of the trained tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Flip, Handed, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Step, Tensor, Trainee, behind
from regft_core.lazy import torch


class WeightAveragingConfig(StrictModel):
    average: Literal["equal", "exponential", "none"] = Field("equal", description="none: the last weights (a control)")
    begin: float = Field(0.5, ge=0, lt=1, description="share of the steps before the first one that is averaged")
    every: int = Field(1, ge=1, description="steps between two that are averaged")
    decay: float | None = Field(None, ge=0, lt=1, description="of the exponential average; null: 0.99, 0: no average")


#: Decay of the exponential average where none is given: about the last 100 steps count.
DECAY = 0.99


class WeightAveraging(Regulariser):
    name = "weight_averaging"
    Config = WeightAveragingConfig
    off = {"average": "exponential", "decay": 0.0}
    controls = {"last": Flip({"average": "none"}, "the last weights instead of an average")}
    sources = {
        "average": "ours: SWA, which needs no decay",
        "begin": "ours: half of the run; the release begins at epoch 161 of 200 to 300 (timgaripov/swa train.py:35)",
        "every": "ours: each step; the release averages once an epoch, and small data have few epochs",
        "decay": f"ours: {DECAY} for the exponential average, so that about the last 100 steps count",
    }

    @classmethod
    def declare(cls, options: WeightAveragingConfig) -> Declares:
        averages = options.average == "equal" or (options.average == "exponential" and options.decay != 0)
        return Declares(active=averages, edit_order=10)

    @classmethod
    def check_options(cls, options: WeightAveragingConfig, phase: Phase) -> list[str]:
        foreign = {"equal": ("decay",), "exponential": ("begin", "every"), "none": ()}[options.average]
        other = "exponential" if options.average == "equal" else "equal"
        written = [name for name in foreign if name in options.model_fields_set]
        problems = [f"{name} belongs to average: {other}; remove it" for name in written]
        if cls.declare(options).active and phase.training.epochs == 0:
            problems.append("a phase without steps has nothing to average")
        return problems

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.averages: dict[str, Tensor] = {}
        self._trained: dict[str, Tensor] = {}

    def _weight(self, index: int, total: int) -> float | None:
        """Share of the weights after the 0-based step ``index`` in the average; None: they do not enter it."""
        if self.options.average == "exponential":
            decay = DECAY if self.options.decay is None else self.options.decay
            return 1 - min(decay, (index + 1) / (index + 10))
        # At least the last step enters, however few there are.
        first = min(int(self.options.begin * total), total - 1)
        # Counted from the end, so that the last weights are always among them.
        if index < first or (total - 1 - index) % self.options.every:
            return None
        entered = (total - 1 - first) // self.options.every - (total - 1 - index) // self.options.every
        return 1 / (entered + 1)

    def before_update(self, step: Step) -> None:
        """An exponential average starts from the weights before the first step."""
        if self.options.average == "exponential" and step.index == 0:
            self._remember(step)
            self.averages = {name: value.detach().clone() for name, value in self._trained.items()}

    def observe_weights(self, step: Step) -> None:
        share = self._weight(step.index, step.total)
        if share is None:
            return
        self._remember(step)
        with torch.no_grad():
            for name, value in self._trained.items():
                if name in self.averages:
                    self.averages[name].lerp_(value, share)
                else:
                    self.averages[name] = value.detach().clone()

    def _remember(self, step: Step) -> None:
        assert step.optimizer is not None
        groups = step.optimizer.param_groups
        self._trained = {n: p for group in groups for n, p in zip(group["names"], group["params"], strict=True)}

    def finish(self, trainee: Trainee) -> None:
        with torch.no_grad():
            for name, value in self._trained.items():
                value.copy_(self.averages[name])

    def state(self) -> dict[str, Tensor]:
        return {f"average/{name}": value for name, value in self.averages.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.averages = behind("average/", state)

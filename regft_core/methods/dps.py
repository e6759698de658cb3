"""DPS: subnetworks chosen by accumulated gradients while training (Zhang et al., NeurIPS 2022).

The run is cut into blocks of ``u = int(steps * block)`` optimiser steps that alternate between two stages:

- dense, stage I: plain training; per entry the squares of the gradient are summed up. Stage II: in every
  matrix only the ``ceil(n * (1 - drop))`` entries with the largest sums get a gradient.
- mix, stage I: every forward pass mixes whole input columns of each matrix with the starting weights, as
  Mixout does: ``((1 - m) T + m W - drop T) / (1 - drop)``, m the mask and T the starting weights. Stage II:
  the same formula with T the weights at the beginning of the stage and m an entry's place among the top
  share of its mean squared gradient, times ``exp(-count / u)`` when u is at least 50 (count: in how many steps
  it was kept; each pass of a step counts its share). Entries whose m is 0 get no gradient. In evaluation the
  weights are the trained ones.

Differences between paper and released code (``variant``):
- released: hidden and attention dropout are off. (The code turns them off in runs below 2000 steps only; for
  longer ones ``paper`` does what it does.)
- released, mix: the gradient of what is kept is not divided by (1 - drop), as that of the formula is.

Decisions:
- ``drop`` is the share that is dropped in both variants, as the released code has it, where the same number
  is called reserve_p.
- matrices are those of the encoder's layers, of projections and pooler, and of the head; biases, norms and
  embeddings are always trained. Sums and masks take the step's gradient before clipping, sums that before any
  other mask.
- a block is at least one step long (the released code divides by zero where it would be shorter).
- the clock is the optimiser step (the released one counts forward calls, so it breaks with two passes).
- ties with the last chosen entry are chosen too. Masked entries still move by momentum and weight decay, but
  noise on the weights (PATS) leaves them alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from regft_core.errors import RunFailed
from regft_core.hooks.base import Declares, DropoutWish, Flip, Handed, Regulariser, StrictModel, Variant
from regft_core.hooks.declare import Step, Tensor, Trainee, behind
from regft_core.lazy import torch
from regft_core.models.architectures import shape_of_inputs
from regft_core.training.chunks import order_statistics

#: Blocks of at least this many steps penalise what was kept often (mix).
PENALISED_FROM = 50


class DpsConfig(StrictModel):
    variant: Variant = "paper"
    mode: Literal["dense", "mix"] = "dense"
    drop: float = Field(0.3, ge=0, lt=1, description="share of each matrix that stage II leaves as it is")
    block: float = Field(0.05, gt=0, le=0.5, description="length of a block as a share of all steps (update ratio)")
    selection: Literal["gradient", "random"] = Field("gradient", description="random: as many, at random (a control)")


class Dps(Regulariser):
    name = "dps"
    Config = DpsConfig
    off = {"drop": 0.0}
    controls = {
        "random": Flip(
            {"selection": "random"},
            "the second stage trains entries at random instead of those with the largest gradients",
        )
    }
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "mode": "code: ZhangHaojie077/DPS script/run_glue.sh:2; the trainer's own default is mix",
        "drop": "code: ZhangHaojie077/DPS script/run_glue.sh:9",
        "block": "code: ZhangHaojie077/DPS script/run_glue.sh:10",
        "selection": "ours: gradient is the method, random its control",
    }

    @classmethod
    def declare(cls, options: DpsConfig) -> Declares:
        mixes, released = options.mode == "mix", options.variant == "released"
        return Declares(
            active=options.drop > 0,
            anchors=("start",) if mixes else (),
            edits=("structure",) if mixes else (),
            owns_weights=mixes,
            trains_encoder=True,
            # In stage I, which every run begins with; in stage II two passes use the same weights.
            random_passes=mixes,
            dropout=DropoutWish(hidden=0.0, attention=0.0) if released else DropoutWish(),
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.weight_views import View

        self.length: int | None = None
        self.block = -1
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}
        self.drawn: dict[str, dict[tuple[str | int, ...], Tensor]] = {}
        self.masks: dict[str, Tensor] = {}
        self.snapshots: dict[str, Tensor] = {}
        sites = trainee.sites
        heads = [name for name in sites.head if name not in sites.mixable and trainee.raw(name).dim() > 1]
        self.names = (*sites.mixable, *heads)
        if self.options.mode == "mix":
            for name in self.names:
                trainee.put_view(name, View(self._mixed, name))

    def _enter(self, index: int) -> None:
        """Begin the block of step ``index``, unless it is running."""
        block = index // self.length if self.length is not None else 0
        if block == self.block:
            return
        if block % 2 == 0:
            self.sums, self.counts, self.masks, self.snapshots = {}, {}, {}, {}
        else:
            self.masks = {name: self._chosen(name, block) for name in self.names if name in self.sums}
            if self.options.mode == "mix":
                self.snapshots = {name: self.trainee.raw(name).detach().clone() for name in self.masks}
            self.sums, self.counts = {}, {}
        self.block = block

    def _chosen(self, name: str, block: int) -> Tensor:
        """Which entries of a matrix are trained in a stage II."""
        score = self._score(name)
        if self.options.selection == "random":
            generator = self.trainee.generator("dps.selection", block, name)
            score = torch.rand(score.shape, generator=generator, device=score.device)
        rank = score.numel() - math.ceil(score.numel() * (1 - self.options.drop))
        if self.trainee.grouped:
            # The same entries, the threshold unread. Of a gradient that is not finite the loop learns by its norm.
            return score >= score.flatten().sort().values[rank]
        try:
            return score >= order_statistics([score], rank, rank)[0]
        except ValueError as error:
            raise RunFailed(
                "not-finite", f"dps: the gradient of {name} is not finite; lower training.learning_rate"
            ) from error

    def _score(self, name: str) -> Tensor:
        """Sum of the squared gradients; for mix their mean, less for what was kept often."""
        if self.options.mode == "dense":
            return self.sums[name]
        assert self.length is not None
        count = torch.where(self.counts[name] > 0, self.counts[name], 1.0)
        score = self.sums[name] / count
        return score * torch.exp(-count / self.length) if self.length >= PENALISED_FROM else score

    def _mixed(self, name: str, weight: Tensor) -> Tensor:
        """The weight that a forward pass of training sees (mix); in evaluation the trained one."""
        current = self.trainee.current
        if current is None or not self.trainee.model.training or not weight.requires_grad:
            return weight
        with torch.no_grad():
            self._enter(int(current.key[0]))
        if self.block % 2 == 0:
            target, mask = self.trainee.anchor("start")[name], self._columns(name, weight)
        elif name in self.masks:
            target, mask = self.snapshots[name], self.masks[name]
        else:
            return weight
        # The formula above in a form that is exact where the weight is still the target.
        mixed: Tensor = target + mask * (weight - target) / (1 - self.options.drop)
        return mixed

    def _columns(self, name: str, weight: Tensor) -> Tensor:
        """A fresh mask that keeps or drops whole inputs of a matrix, noted once a pass where a gradient follows."""
        assert self.trainee.current is not None
        key = self.trainee.current.key
        shape = shape_of_inputs(name, weight.shape)
        generator = self.trainee.generator("dps.columns", *key, name)
        mask = torch.empty(shape, device=weight.device).bernoulli_(1 - self.options.drop, generator=generator)
        # A layer that is passed through several times uses its matrix as often, with the same mask.
        if torch.is_grad_enabled():
            self.drawn.setdefault(name, {})[key] = mask
        return mask

    def observe_gradients(self, step: Step) -> None:
        """Stage I: sum up the squares, and count what the passes of the step kept."""
        drawn, self.drawn = self.drawn, {}
        self.length = max(1, int(step.total * self.options.block))
        with torch.no_grad():
            self._enter(step.index)
            if self.block % 2 == 1:
                return
            # Under fp16 an overflowing step is skipped by the scaler; it must not enter the sums. This is the only
            # look at values that the method takes in a step.
            finite = step.finite()
            if finite is not None and not finite:
                return
            for name in self.names:
                if (gradient := step.gradient(name)) is None:
                    continue
                if name not in self.sums:
                    self.sums[name] = torch.zeros_like(gradient)
                self.sums[name].addcmul_(gradient, gradient)
                if name in drawn:
                    kept = torch.stack([*drawn[name].values()]).mean(0)
                    self.counts[name] = self.counts[name] + kept if name in self.counts else kept

    def gradient_masks(self, step: Step) -> Iterator[tuple[str, Tensor | float]]:
        """Stage II: the mask. Released, mix: without the factor of the formula's derivative, in both stages."""
        factor = 1 - self.options.drop if self.options.mode == "mix" and self.options.variant == "released" else 1.0
        for name in self.names:
            if self.block % 2 == 1 and name in self.masks:
                mask = self.masks[name]
                yield name, mask if factor == 1.0 else mask * factor
            elif factor != 1.0:
                yield name, factor

    def _stored(self) -> dict[str, dict[str, Tensor]]:
        return {"sum": self.sums, "count": self.counts, "mask": self.masks, "snapshot": self.snapshots}

    def state(self) -> dict[str, Tensor]:
        tensors = {f"{kind}/{name}": value for kind, named in self._stored().items() for name, value in named.items()}
        return tensors | {"clock": torch.tensor([self.block, self.length or 0])}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.block, length = (int(value) for value in state["clock"])
        self.length = length or None
        for kind, named in self._stored().items():
            named.clear()
            named.update(behind(f"{kind}/", state))

    def export(self, trainee: Trainee) -> None:
        trainee.take_views(self.names if self.options.mode == "mix" else (), folded=False)

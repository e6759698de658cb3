"""WiSE-FT: interpolate the trained weights with those that training started from (Wortsman et al., CVPR 2022).

After the last step, w <- (1 - alpha) * start + alpha * w for every trained tensor. Start is what the
phase found: the checkpoint, or the weights of the phase before (a fitted head, a post-trained encoder).

``start: <phase>`` takes the weights of an earlier phase for the start. The phase itself then takes no step: it mixes
that phase with the one it starts from, so that several shares of the way need one training.

Decisions:
- the head is interpolated like all others, as in the paper, where it starts from text embeddings. Where it starts
  from a draw, interpolation mostly shrinks it, and ``head: trained`` leaves it as it was trained.
- where another method changes the starting weights (NoisyTune), start is before that change. Layers that are drawn
  anew (Re-init) start at their draw and count as part of the new head.
- behind a weight view the trained tensors are interpolated, not what the view makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Flip, Handed, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import FitData, Tensor, Trainee
from regft_core.lazy import torch
from regft_core.schema import Name


class WiseFtConfig(StrictModel):
    alpha: float = Field(0.5, ge=0, le=1, description="share of the trained weights; 1 is plain fine-tuning")
    head: Literal["interpolated", "trained"] = Field("interpolated", description="trained: left as it was trained")
    start: Name | None = Field(
        None, description="earlier phase whose weights are the start; those that the phase found when absent"
    )


class WiseFt(Regulariser):
    name = "wise_ft"
    Config = WiseFtConfig
    off = {"alpha": 1.0}
    controls = {"no_interpolation": Flip({"alpha": 1.0}, "the trained weights as they are")}
    sources = {
        "alpha": "code: mlfoundations/wise-ft src/args.py:41",
        "head": "code: mlfoundations/wise-ft src/wise_ft.py:19; every tensor",
        "start": "ours: the weights that training started from, as in the paper, wherever they were made",
    }

    @classmethod
    def declare(cls, options: WiseFtConfig) -> Declares:
        return Declares(
            active=options.alpha < 1,
            anchors=("start",) if options.start is None else (),
            needs={} if options.start is None else {options.start: "weights"},
            edit_order=20,  # after an average over the steps
            trains_encoder=options.start is None,
        )

    @classmethod
    def check_options(cls, options: WiseFtConfig, phase: Phase) -> list[str]:
        problems = []
        if options.start is not None:
            without = f"it mixes with phase '{options.start}' in a phase without steps; set epochs: 0"
            return [without] if phase.training.epochs else []
        if cls.declare(options).active and phase.training.epochs == 0:
            problems.append(
                "a phase without steps leaves nothing to interpolate; give it epochs, or name an earlier phase: start"
            )
        if options.alpha == 0 and options.head == "interpolated":
            problems.append("alpha 0 throws the whole training away, head included; raise it, or set head: trained")
        return problems

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self._start = None if self.options.start is None else trainee.as_learned(handed[self.options.start].weights)

    def fit(self, trainee: Trainee, data: FitData) -> None:
        if self._start is not None:  # the phase takes no step, so there is no end of it
            self._mix(trainee, self._start)

    def finish(self, trainee: Trainee) -> None:
        if self._start is None:
            self._mix(trainee, trainee.anchor("start"))

    def _mix(self, trainee: Trainee, start: Mapping[str, Tensor]) -> None:
        alpha, spared = self.options.alpha, frozenset(trainee.new) if self.options.head == "trained" else frozenset()
        with torch.no_grad():
            for name, parameter in trainee.named_raw():
                if parameter.requires_grad and name not in spared:
                    parameter.copy_((1 - alpha) * start[name].to(parameter) + alpha * parameter)

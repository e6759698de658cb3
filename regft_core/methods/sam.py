"""Sharpness-aware minimisation: each step takes its gradient further up the loss (Foret et al., ICLR 2021).

A first pass finds the gradient g at the weights w. The weights move up by e = radius * g / ||g||, the norm over all
trained tensors. A second pass finds the gradient at w + e. The weights return to w, and the optimiser steps along
the second gradient alone (algorithm 1; the term with second derivatives is dropped, as in the paper).

``adaptive: true`` is ASAM (Kwon et al., ICML 2021): with T = |w| + eta, entry by entry, the move is
e = radius * T^2 g / ||T g||, so that it does not depend on how layers are scaled against each other.

Differences between paper and released code:
- ASAM: the release leaves the biases unscaled (T = 1), as here. Its class has eta 0.01, its example script 0.
- SAM: weight decay is part of the loss in the release, so its gradient is taken at w + e. Here the protocol's decay is
  decoupled and acts on w; penalties of other methods (L2-SP) are taken at w, too.

Decisions:
- both passes see the same dropout masks, those of plain fine-tuning. The release draws both with one key, too.
- with gradient accumulation each batch climbs along its own gradient: a batch frees its graph before the next one
  comes. It is the paper's m-sharpness with m = ``batch_size`` (section 4.1), and what its replicas do by default.
- the weights return by copying, not by subtracting e: w + e - e is not w in floating point.
- all trained tensors move, the head and what other methods attach included. Frozen ones do not.
- "weights" of ASAM are all tensors but biases; the release looks for "weight" in a name, which XLNet's matrices lack.
- other methods' masks and clipping act on the second gradient. The move is neither masked nor clipped.
- fp16: the first gradient is that of the scaled loss, whose direction is the same. Where it overflows, nothing moves,
  and the scaler skips the step.
- bf16 and fp16 round the moved weights in each matrix product, the small moves with them; the direction survives on
  average. Bahri et al. trained T5 so.
- ``direction: random`` (a control) moves as far along a random direction. It needs no first pass, so it costs one.
  A second pass without a move would be plain fine-tuning bit for bit; ``_matched_compute`` compares with that.
- the loss that is logged is that of the second pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Cost, Declares, Description, Flip, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Step, Tensor
from regft_core.lazy import torch

ASCENT, DESCENT = "ascent", "descent"


class SamConfig(StrictModel):
    radius: float = Field(0.05, ge=0, description="length of the move (rho)")
    adaptive: bool = Field(False, description="measure the length in units of each weight (ASAM)")
    eta: float = Field(0.01, ge=0, description="added to the size of each weight; for adaptive: true")
    direction: Literal["gradient", "random"] = Field("gradient", description="random: as far, elsewhere (a control)")


def moves(
    weights: Mapping[str, Tensor], directions: Mapping[str, Tensor], radius: float, eta: float | None
) -> dict[str, Tensor]:
    """The move of every tensor by name: of length ``radius`` over all, along ``directions``.

    Args:
        eta: None measures the plain length; else the length in units of |w| + eta, biases in units of 1.
    """
    scales = {n: 1.0 if eta is None or n.endswith("bias") else w.detach().abs() + eta for n, w in weights.items()}
    scaled = {name: direction * scales[name] for name, direction in directions.items()}
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(scaled.values()))))
    # No gradient (or one that fp16 overflowed, whose step the scaler skips) gives no direction.
    size = torch.where((norm > 0) & norm.isfinite(), radius / norm, 0.0)
    return {name: torch.where(size > 0, size * one * scales[name], 0.0) for name, one in scaled.items()}


class Sam(Regulariser):
    name = "sam"
    Config = SamConfig
    off = {"radius": 0.0}
    controls = {"random": Flip({"direction": "random"}, "the weights move as far, but not along the gradient")}
    sources = {
        "radius": "code: google-research/sam README.md:33; for CIFAR-10",
        "adaptive": "ours: SAM itself; true is ASAM",
        "eta": "code: SamsungLabs/ASAM asam.py:5",
        "direction": "ours: gradient is the method, random its control",
    }

    @classmethod
    def declare(cls, options: SamConfig) -> Declares:
        passes = 2 if options.direction == "gradient" else 1
        return Declares(
            active=options.radius > 0,
            passes=(ASCENT, DESCENT),
            reads_positions=False,
            description=Description(cost=Cost(passes, passes)),
        )

    @classmethod
    def check_options(cls, options: SamConfig, phase: Phase) -> list[str]:
        if "eta" in options.model_fields_set and not options.adaptive:
            return ["eta belongs to adaptive: true; remove it, or set adaptive: true"]
        return []

    def backward(self, step: Step) -> Tensor:
        """Climb, take the gradient there, and put the weights back."""
        weights = dict(step.trainee.named_trainable())
        first, directions = self._directions(step, weights)
        moved = moves(weights, directions, self.options.radius, self.options.eta if self.options.adaptive else None)
        own: list[Tensor] = list(weights.values())
        started = [weight.detach().clone() for weight in own]
        try:
            with torch.no_grad():
                torch._foreach_add_(own, tuple(moved.values()))
            del directions, moved  # the second pass has their memory
            loss = step.task_loss(step.forward(DESCENT))
            step.backward(loss)
        finally:
            with torch.no_grad():
                torch._foreach_copy_(own, started)
        self.diagnostics.read(step, **({} if first is None else {"loss": first}), moved_loss=loss)
        return loss.detach()

    def _directions(self, step: Step, weights: Mapping[str, Tensor]) -> tuple[Tensor | None, dict[str, Tensor]]:
        """The loss at the weights, where it is needed, and the direction of the move by name."""
        if self.options.direction == "random":
            return None, {
                name: torch.randn(weight.shape, generator=step.generator("sam.direction", name), device=weight.device)
                for name, weight in weights.items()
            }
        loss = step.task_loss(step.forward(ASCENT))
        scaled = loss if step.scaler is None else step.scaler.scale(loss)
        return loss.detach(), dict(zip(weights, step.gradients(scaled, list(weights.values())), strict=True))

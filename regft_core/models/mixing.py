"""The mixed weight of attention-guided weight mixup as a parametrisation.

One elementwise merge per forward gives a single matrix product, instead of one product with
the task weight and one with the pretrained weight.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FORMS = ("factored", "convex", "full_rank")


class WeightMixing(nn.Module):
    """Maps a task weight W to a mix of W and its pretrained value W0.

    - ``factored`` (paper's low-rank formula, released code at rank 1):
      ``(a1 a2) / r * W + ((1 - a1)(1 - a2)) / r * W0``. The coefficients do not add up to 1.
    - ``convex``: ``m W + (1 - m) W0`` with ``m = a1 a2 / r``.
    - ``full_rank``: ``m W + (1 - m) W0`` with one free entry of m per weight.

    Tensors of more than two dimensions act as matrices ``[d, rest]``.

    Args:
        pretrained: W0, any shape with at least two dimensions; copied.
        std: standard deviation of the initial attention around 1, before clipping to [0, 1].
        generator: random stream of the initial attention; None sets it to exactly 1.
    """

    pretrained: Tensor
    a: Tensor
    a1: Tensor
    a2: Tensor

    def __init__(
        self, pretrained: Tensor, *, rank: int, form: str, std: float, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.form = form
        self.rank = rank
        self.shape = pretrained.shape
        d, k = pretrained.shape[0], pretrained.shape[1:].numel()
        self.register_buffer("pretrained", pretrained.detach().clone(), persistent=False)
        shapes = {"a": (d, k)} if form == "full_rank" else {"a1": (d, rank), "a2": (rank, k)}
        for name, shape in shapes.items():
            values = torch.ones(shape, device=pretrained.device)
            if generator is not None:
                noise = torch.randn(shape, generator=generator, device=pretrained.device)
                values = (values + std * noise).clamp(0, 1)
            self.register_parameter(name, nn.Parameter(values, requires_grad=False))

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """Coefficients of W and of W0, each ``[d, k]``."""
        if self.form == "full_rank":
            return self.a, 1 - self.a
        product = self.a1 @ self.a2 / self.rank
        if self.form == "convex":
            return product, 1 - product
        return product, (1 - self.a1) @ (1 - self.a2) / self.rank

    def forward(self, weight: Tensor) -> Tensor:
        own, kept = self.coefficients()
        mixed = own * weight.reshape(own.shape) + kept * self.pretrained.reshape(own.shape)
        return mixed.reshape(self.shape)

    @torch.no_grad()
    def clamp(self) -> None:
        """Project the attention back onto [0, 1]."""
        for parameter in self.parameters():
            parameter.clamp_(0, 1)

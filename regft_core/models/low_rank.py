"""Low-rank additions to linear modules, as modules of their own beside a model that keeps its names."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import Tensor, nn


class LowRank(nn.Module):
    """``scale * B A dropout(x)``, to be added to a linear map of x; 0 at the start because B is.

    Args:
        inputs, outputs: width of x and of the linear's output.
        rank: rows of ``a`` [rank, inputs] and columns of ``b`` [outputs, rank].
        scale: factor of the product.
        dropout: probability with which entries of x are dropped before A while training.
        generator: random stream of A, uniform between -1 and 1 over the root of ``inputs``.
    """

    def __init__(
        self, inputs: int, outputs: int, *, rank: int, scale: float, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.scale, self.dropout = scale, dropout
        start = torch.empty(rank, inputs, device=generator.device)
        bound = 1 / math.sqrt(inputs)
        self.a = nn.Parameter(start.uniform_(-bound, bound, generator=generator))
        self.b = nn.Parameter(torch.zeros(outputs, rank, device=generator.device))

    def addition(self, x: Tensor, training: bool) -> Tensor:
        """What is added to the linear's output for its input ``x`` [..., inputs]."""
        kept = functional.dropout(x, self.dropout, training)
        return functional.linear(functional.linear(kept, self.a), self.b) * self.scale

    @torch.no_grad()
    def product(self) -> Tensor:
        """``scale * B A`` [outputs, inputs], to be folded into the linear's weight."""
        return ((self.b.double() @ self.a.double()) * self.scale).to(self.b.dtype)

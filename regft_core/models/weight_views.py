"""Views of weights: parametrisations, and low-rank additions, which map a trained tensor to the one that is used."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

#: Squarings of a matrix, after which only eigenvalues that fp32 cannot tell from the largest count.
SQUARINGS = 24


def largest_singular_value(weight: Tensor) -> Tensor:
    """That of W ``[K, H]`` with few rows, by products alone; to the precision of fp32.

    A GPU's solver tells the host whether it converged, which waits. The trace of P W W', with P the limit of the powers
    of W W' at trace 1, is the square of the value, and its gradient that of the value.
    """
    gram = weight.double() @ weight.double().T
    power = gram.detach()
    power = power / power.trace().clamp_min(1e-30)
    for _ in range(SQUARINGS):
        power = power @ power
        power = power / power.trace().clamp_min(1e-30)
    return (power * gram).sum().clamp_min(1e-30).sqrt().to(weight.dtype)


class SpectralView(nn.Module):
    """W ``[K, H]`` divided by its largest singular value; a weight of zeros stays."""

    def forward(self, weight: Tensor) -> Tensor:
        # In fp32, also under autocast; the gradient goes through the singular value.
        with torch.autocast(weight.device.type, enabled=False):
            on_cpu = weight.device.type == "cpu"
            largest = torch.linalg.matrix_norm(weight, ord=2) if on_cpu else largest_singular_value(weight)
            return weight / largest.clamp_min(1e-12)


class MixoutView(nn.Module):
    """W mixed with an anchor W0 at random in training, and W itself in evaluation.

    A column whose mask is 0 is W0, the others are W0 + (W - W0) / (1 - p), so that the mean over masks is W.

    Args:
        anchor: W0; not copied and not stored with the model. None: a zero weight.
        probability: p, the share of columns that become W0; 1 gives W0 throughout.
        mask: returns the mask of the running pass, 1 for kept columns, of a shape that broadcasts to W;
            None while no pass is running.
        scaled_gradient: False leaves the factor 1 / (1 - p) out of the gradient.
    """

    anchor: Tensor | None

    def __init__(
        self, anchor: Tensor | None, probability: float, mask: Callable[[], Tensor | None], scaled_gradient: bool
    ) -> None:
        super().__init__()
        self.register_buffer("anchor", anchor, persistent=False)
        self.probability, self.mask, self.scaled_gradient = probability, mask, scaled_gradient

    def forward(self, weight: Tensor) -> Tensor:
        mask = self.mask() if self.training else None
        if mask is None:
            return weight
        kept = 1 - self.probability
        if not self.scaled_gradient:
            # The value of W, and kept times its gradient.
            weight = weight.detach() + kept * (weight - weight.detach())
        factor = mask / kept if kept > 0 else torch.zeros_like(mask)
        return factor * weight if self.anchor is None else self.anchor + factor * (weight - self.anchor)


class View(nn.Module):
    """Maps the trained tensor of plain parameter ``name`` to the one that a forward pass uses.

    Args:
        function: called with ``name`` and the trained tensor; returns a tensor of its shape and dtype.
    """

    def __init__(self, function: Callable[[str, Tensor], Tensor], name: str) -> None:
        super().__init__()
        self.function, self.name = function, name

    def forward(self, weight: Tensor) -> Tensor:
        return self.function(self.name, weight)


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
        """Return what is added to the linear's output for its input ``x`` [..., inputs]."""
        kept = functional.dropout(x, self.dropout, training)
        return functional.linear(functional.linear(kept, self.a), self.b) * self.scale

    @torch.no_grad()
    def product(self) -> Tensor:
        """``scale * B A`` [outputs, inputs], to be folded into the linear's weight."""
        return ((self.b.double() @ self.a.double()) * self.scale).to(self.b.dtype)

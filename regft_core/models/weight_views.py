"""Views of weights: parametrisations, and low-rank additions, which map a trained tensor to the one that is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

#: Squarings of a matrix, after which only eigenvalues that fp32 cannot tell from the largest count.
SQUARINGS = 24


def largest_singular_value(weight: Tensor) -> Tensor:
    """That of W ``[K, H]`` with few rows, by products alone (a GPU's solver makes the host wait); precise to fp32.

    The trace of P W W', with P the limit of the powers of W W' at trace 1, is the square of the value.
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


class View(nn.Module):
    """Lets ``function(name, trained tensor)`` give the tensor that a forward pass uses for plain parameter ``name``."""

    def __init__(self, function: Callable[[str, Tensor], Tensor], name: str) -> None:
        super().__init__()
        self.function, self.name = function, name

    def forward(self, weight: Tensor) -> Tensor:
        return self.function(self.name, weight)


class LowRank(nn.Module):
    """``scale * B A dropout(x)``, to be added to a linear map of x; A [rank, inputs] is drawn, B [outputs, rank] 0."""

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


#: Entries of the rows that are mixed at once on a CPU.
ROWS_CHUNK = 1 << 15


class WeightMixing(nn.Module):
    """Maps a task weight W to a mix of W and its pretrained value W0.

    - ``factored`` (paper's low-rank formula, released code at rank 1):
      ``(a1 a2) / r * W + ((1 - a1)(1 - a2)) / r * W0``. The coefficients do not add up to 1.
    - ``convex``: ``m W + (1 - m) W0`` with ``m = a1 a2 / r``.
    - ``full_rank``: ``m W + (1 - m) W0`` with one free entry of m per weight.

    Tensors of more than two dimensions act as matrices ``[d, rest]``. ``std``: standard deviation of the initial
    attention around 1, before clipping to [0, 1].
    """

    pretrained: Tensor
    a: Tensor
    a1: Tensor
    a2: Tensor

    def __init__(self, pretrained: Tensor, *, rank: int, form: str, std: float, generator: torch.Generator) -> None:
        super().__init__()
        self.form, self.rank, self.shape = form, rank, pretrained.shape
        d, k = pretrained.shape[0], pretrained.shape[1:].numel()
        self.register_buffer("pretrained", pretrained.detach().clone(), persistent=False)
        shapes = {"a": (d, k)} if form == "full_rank" else {"a1": (d, rank), "a2": (rank, k)}
        for name, shape in shapes.items():
            noise = torch.randn(shape, generator=generator, device=pretrained.device)
            values = (1 + std * noise).clamp(0, 1)
            self.register_parameter(name, nn.Parameter(values, requires_grad=False))

    @property
    def attention(self) -> tuple[Tensor, ...]:
        """``(a1 [d, r], a2 [r, k])``, or ``(a [d, k],)`` at full rank."""
        return (self.a,) if self.form == "full_rank" else (self.a1, self.a2)

    def forward(self, weight: Tensor) -> Tensor:
        matrix, pretrained = (tensor.reshape(tensor.shape[0], -1) for tensor in (weight, self.pretrained))
        if self.rank == 1 and self.form != "full_rank":
            mixed: Tensor = _RankOneMix.apply(matrix, pretrained, self.a1, self.a2, self.form)
        else:
            own, kept = coefficients(self.attention, self.form, self.rank)
            mixed = own * matrix + kept * pretrained
        return mixed.reshape(self.shape)


def coefficients(attention: Sequence[Tensor], form: str, rank: int) -> tuple[Tensor, Tensor]:
    """Coefficients of W and of W0, each ``[d, k]``; see :class:`WeightMixing` for the forms."""
    if form == "full_rank":
        (a,) = attention
        return a, 1 - a
    a1, a2 = attention
    product = a1 @ a2 / rank
    if form == "convex":
        return product, 1 - product
    return product, (1 - a1) @ (1 - a2) / rank


class _RankOneMix(torch.autograd.Function):
    """``own * W + kept * W0`` of matrices, bit for bit as the formula written out, and its gradients."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, pretrained: Tensor, a1: Tensor, a2: Tensor, form: str) -> Tensor:
        ctx.save_for_backward(weight, pretrained, a1, a2)
        ctx.form = form
        mixed = torch.empty_like(weight)
        for rows in _rows(weight):
            part = torch.mul(_own(a1[rows], a2, form), weight[rows], out=mixed[rows])
            part.add_(_kept(a1[rows], a2, form).mul_(pretrained[rows]))
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        weight, pretrained, a1, a2 = ctx.saved_tensors
        to_weight, to_pretrained, *to_attention = ctx.needs_input_grad[:4]
        found: list[Tensor | None] = [None] * 5
        differentiable = torch.is_grad_enabled()  # somebody differentiates once more
        for place, needed, part in ((0, to_weight, _own), (1, to_pretrained, _kept)):
            if needed and differentiable:
                found[place] = gradient * part(a1, a2, ctx.form)
            elif needed:
                target = found[place] = torch.empty_like(gradient)
                for rows in _rows(gradient):
                    torch.mul(gradient[rows], part(a1[rows], a2, ctx.form), out=target[rows])
        if any(to_attention):
            through_own, through_kept = gradient * weight, gradient * pretrained
            if ctx.form == "convex":
                through_own = through_own - through_kept
                found[2], found[3] = through_own @ a2.t(), a1.t() @ through_own
            else:
                found[2] = through_own @ a2.t() - through_kept @ (1 - a2).t()
                found[3] = a1.t() @ through_own - (1 - a1).t() @ through_kept
        return tuple(found)


def _own(a1: Tensor, a2: Tensor, form: str) -> Tensor:
    """Coefficients of W from a column ``[d, 1]`` and a row ``[1, k]``, the bits that a matrix product gives."""
    return a1 * a2


def _kept(a1: Tensor, a2: Tensor, form: str) -> Tensor:
    """Coefficients of W0, likewise."""
    return 1 - a1 * a2 if form == "convex" else (1 - a1) * (1 - a2)


def _rows(matrix: Tensor) -> list[slice]:
    """Rows that are mixed at once: those that fit into a CPU's cache, elsewhere all of them."""
    if matrix.device.type != "cpu":
        return [slice(None)]
    height = max(1, ROWS_CHUNK // max(1, matrix.shape[1]))
    return [slice(start, start + height) for start in range(0, matrix.shape[0], height)]

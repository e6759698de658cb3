"""The mixed weight of attention-guided weight mixup as a parametrisation.

One elementwise merge per forward gives a single matrix product, instead of one product with
the task weight and one with the pretrained weight. At rank 1, which the paper uses, nothing of the
size of the weight is made but the mix itself: the coefficients are outer products of two vectors, so they
are computed again where they are needed, on a CPU for rows that stay in its cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

FORMS = ("factored", "convex", "full_rank")
#: Entries of the rows that are mixed at once on a CPU.
ROWS_CHUNK = 1 << 15


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

    @property
    def attention(self) -> tuple[Tensor, ...]:
        """``(a1 [d, r], a2 [r, k])``, or ``(a [d, k],)`` at full rank."""
        return (self.a,) if self.form == "full_rank" else (self.a1, self.a2)

    def forward(self, weight: Tensor) -> Tensor:
        matrix, pretrained = (tensor.reshape(tensor.shape[0], -1) for tensor in (weight, self.pretrained))
        if self.rank == 1 and self.form != "full_rank":
            mixed: Tensor = _RankOneMix.apply(matrix, pretrained, self.a1, self.a2, self.form)
        else:
            mixed = mix(matrix, pretrained, self.attention, self.form, self.rank)
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


def mix(weight: Tensor, pretrained: Tensor, attention: Sequence[Tensor], form: str, rank: int) -> Tensor:
    """The formula written out, for matrices ``[d, k]``; autograd differentiates it as often as it is asked to."""
    own, kept = coefficients(attention, form, rank)
    return own * weight + kept * pretrained


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

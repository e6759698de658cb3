"""The squared distance between lists of tensors, with a gradient that keeps no copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regft_core.training.chunks import Scratch, chunked


class _SquaredDistance(torch.autograd.Function):
    """Autograd would keep a difference and a square of every tensor; here both are computed in the cache."""

    @staticmethod
    def forward(ctx: Any, targets: Sequence[Tensor] | None, *weights: Tensor) -> Tensor:
        ctx.targets = targets
        ctx.save_for_backward(*weights)
        return torch.stack([_squares(*pair) for pair in _pairs(weights, targets)]).sum()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        scale = 2 * outer[0]
        pairs = list(_pairs(ctx.saved_tensors, ctx.targets))
        return None, *(_difference(*pair, scale) for pair in pairs)


def squared_distance(weights: Sequence[Tensor], targets: Sequence[Tensor] | None) -> Tensor:
    """Sum of (weight - target)^2 over all entries of all tensors, a scalar; without targets that of weight^2."""
    found: Tensor = _SquaredDistance.apply(targets, *weights)
    return found


def _pairs(weights: Sequence[Tensor], targets: Sequence[Tensor] | None) -> list[tuple[Tensor, Tensor | None]]:
    return list(zip(weights, [None] * len(weights) if targets is None else targets, strict=True))


def _squares(weight: Tensor, target: Tensor | None) -> Tensor:
    if target is None:
        return weight.square().sum()
    scratch = Scratch()
    parts = [torch.sub(own, to, out=scratch.like(own)).square_().sum() for own, to in chunked(weight, target)]
    return torch.stack(parts).sum()


def _difference(weight: Tensor, target: Tensor | None, scale: Tensor) -> Tensor:
    """``scale * (weight - target)``; ``scale`` is a scalar on their device."""
    found = torch.empty_like(weight)
    if target is None:
        return torch.mul(weight, scale, out=found)
    for out, own, to in chunked(found, weight, target):
        torch.sub(own, to, out=out).mul_(scale)
    return found

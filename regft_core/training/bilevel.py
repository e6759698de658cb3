"""Hypergradients of a two-level problem by finite differences, and the exact one as oracle.

Lower level: weights W minimise the training loss. Upper level: attention a minimises the
validation loss at the weights that one gradient step of rate eta reaches. The chain rule gives

    d/da L_val(W - eta * dL_tr/dW, a) = dL_val/da - eta * (d2 L_tr / da dW) v,   v = dL_val/dW'

and the mixed derivative times v is estimated from two gradients at W +- e v, e = radius / |v|
(Liu, Simonyan, Yang, "DARTS", 2019, section 2.3). Both gradients must see the same dropout
masks: with independent masks the estimate is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regft_core.training.chunks import Scratch, chunked

#: Runs one training-loss pass; the random draw is the caller's, so that masks can be shared.
LossFunction = Callable[[], Tensor]


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """2-norm over all entries of all tensors."""
    return torch.linalg.vector_norm(torch.stack(list(torch._foreach_norm([tensor.float() for tensor in tensors]))))


@torch.no_grad()
def shift(weights: Sequence[Tensor], direction: Sequence[Tensor], scale: Tensor | float, grouped: bool = False) -> None:
    """Add the scalar ``scale`` times ``direction`` to ``weights`` in place.

    ``grouped`` as in ``Trainee.grouped``, with the same bits.
    """
    if grouped:
        torch._foreach_add_(list(weights), torch._foreach_mul(list(direction), scale))
        return
    scratch = Scratch()
    for weight, move in zip(weights, direction, strict=True):
        for part, own in chunked(weight, move):
            part.add_(torch.mul(own, scale, out=scratch.like(own)))


@torch.no_grad()
def snapshot(weights: Sequence[Tensor], grouped: bool = False) -> list[Tensor]:
    """Copies, bit for bit."""
    if grouped:
        return list(torch._foreach_mul(list(weights), 1))  # what older versions of torch have to copy a list
    return [w.detach().clone() for w in weights]


@torch.no_grad()
def restore(weights: Sequence[Tensor], copies: Sequence[Tensor]) -> None:
    """Put ``copies`` back bit for bit (adding and subtracting a shift would round)."""
    torch._foreach_copy_(list(weights), list(copies))


def gradients(loss: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a scalar, with zeros where an input does not matter."""
    found = torch.autograd.grad(loss, list(inputs), allow_unused=True)
    return [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True)]


def mixed_term(
    loss_plus: LossFunction,
    loss_minus: LossFunction,
    weights: Sequence[Tensor],
    direction: Sequence[Tensor],
    attention: Sequence[Tensor],
    radius: float,
    grouped: bool = False,
) -> list[Tensor]:
    """Central difference of dL/da along ``direction``: ``(d2 L / da dW) direction``.

    Leaves the weights at W - e * direction; the caller restores them (or not: the released
    weight mixup does not).
    """
    norm = global_norm(direction)
    epsilon = radius / torch.clamp(norm, min=1e-12)
    shift(weights, direction, epsilon, grouped)
    plus = gradients(loss_plus(), attention)
    shift(weights, direction, -2 * epsilon, grouped)
    minus = gradients(loss_minus(), attention)
    found = list(torch._foreach_sub(plus, minus))
    torch._foreach_div_(found, 2 * epsilon)
    return found

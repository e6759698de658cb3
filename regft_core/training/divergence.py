"""How far two predictions of the same examples are apart; which measure is meant is decided by the task.

Classes are compared by divergences of their distributions; one output (regression) by the squared
difference, since a softmax over one output is constant. Everything is per example, ``[B]``, and every
argument gets gradient unless the caller detaches it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kl(one: Tensor, two: Tensor) -> Tensor:
    """KL(p || q) of ``[B, K]`` logits, summed over the classes."""
    log_p, log_q = one.log_softmax(-1), two.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def symmetric_kl(one: Tensor, two: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p): the sum, not its half."""
    return kl(one, two) + kl(two, one)


def jensen_shannon(one: Tensor, two: Tensor) -> Tensor:
    """(KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2; between 0 and ln 2."""
    log_p, log_q = one.log_softmax(-1), two.log_softmax(-1)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return ((log_p.exp() * (log_p - log_m)).sum(-1) + (log_q.exp() * (log_q - log_m)).sum(-1)) / 2


def reversed_jensen_shannon(one: Tensor, two: Tensor) -> Tensor:
    """(KL(m || p) + KL(m || q)) / 2 with m = (p + q) / 2, which has no upper bound."""
    log_p, log_q = one.log_softmax(-1), two.log_softmax(-1)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return (log_m.exp() * (2 * log_m - log_p - log_q)).sum(-1) / 2


def squared_difference(one: Tensor, two: Tensor) -> Tensor:
    """(a - b)^2 of ``[B, 1]`` outputs; ValueError for other shapes, which would broadcast."""
    if one.shape != two.shape or one.shape[-1] != 1:
        raise ValueError(f"outputs {tuple(one.shape)} against {tuple(two.shape)}; both must be [B, 1]")
    return (one - two).squeeze(-1).square()


def symmetric_divergence(one: Tensor, two: Tensor, kind: str) -> Tensor:
    """:func:`symmetric_kl` of classes, :func:`squared_difference` on regression."""
    return squared_difference(one, two) if kind == "regression" else symmetric_kl(one, two)

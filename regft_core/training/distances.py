"""Distances of two predictions of the same examples.

Labels are compared by divergences of the distributions that the kind reads logits as, their mean where an example has
several, as the task's loss is; values by the squared difference, since a softmax over one output is constant. All of
these are per example, ``[B]``, and every argument gets gradient unless the caller detaches it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from regft_core.hooks.declare import Tensor
from regft_core.kinds import find
from regft_core.lazy import torch


def kl(one: Tensor, two: Tensor, kind: str = "classification") -> Tensor:
    """KL(p || q) of ``[B, K]`` logits."""
    log_p, log_q = _logs(one, two, kind)
    return _each(log_p.exp() * (log_p - log_q))


def symmetric_kl(one: Tensor, two: Tensor, kind: str = "classification") -> Tensor:
    """KL(p || q) + KL(q || p) of logits ``[B, K]``: the sum, not its half."""
    return kl(one, two, kind) + kl(two, one, kind)


def jensen_shannon(one: Tensor, two: Tensor, kind: str = "classification") -> Tensor:
    """(KL(p || m) + KL(q || m)) / 2 of logits ``[B, K]``, m = (p + q) / 2; 0 to ln 2."""
    log_p, log_q = _logs(one, two, kind)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return (_each(log_p.exp() * (log_p - log_m)) + _each(log_q.exp() * (log_q - log_m))) / 2


def reversed_jensen_shannon(one: Tensor, two: Tensor, kind: str = "classification") -> Tensor:
    """(KL(m || p) + KL(m || q)) / 2 of logits ``[B, K]``, with m = (p + q) / 2, which has no upper bound."""
    log_p, log_q = _logs(one, two, kind)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return _each(log_m.exp() * (2 * log_m - log_p - log_q)) / 2


def squared_difference(one: Tensor, two: Tensor) -> Tensor:
    """(a - b)^2 of ``[B, 1]`` outputs; ValueError for other shapes, which would broadcast."""
    if one.shape != two.shape or one.shape[-1] != 1:
        raise ValueError(f"outputs {tuple(one.shape)} against {tuple(two.shape)}; both must be [B, 1]")
    return (one - two).squeeze(-1).square()


def divergence(
    one: Tensor, two: Tensor, kind: str, measure: Callable[[Tensor, Tensor, str], Tensor] = symmetric_kl
) -> Tensor:
    """``measure`` of two predictions ``[B, K]`` over labels, :func:`squared_difference` of values."""
    return measure(one, two, kind) if find(kind).has_labels else squared_difference(one, two)


def _logs(one: Tensor, two: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    read = find(kind).log_probabilities
    return read(one), read(two)


def _each(terms: Tensor) -> Tensor:
    """The sum over outcomes ``[B, ..., C]`` of each example, the mean over its distributions."""
    return terms.sum(-1).view(len(terms), -1).mean(1)

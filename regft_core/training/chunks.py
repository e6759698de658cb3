"""Pieces of large tensors, for a CPU's cache or few kernels of a GPU, and exact order statistics over many tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from regft_core.hooks.declare import Tensor
from regft_core.lazy import np, torch

#: Entries of a piece. Several operations over one piece read it from the cache, where one after the other over whole
#: tensors each would wait for memory. A multiple of every vector width, so that no entry changes its last bit.
CPU_CHUNK = 1 << 15


def chunked(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views of the same up to :data:`CPU_CHUNK` entries of tensors of one shape.

    All entries at once on a GPU, and where one of them is strided.
    """
    if tensors[0].device.type != "cpu" or not all(tensor.is_contiguous() for tensor in tensors):
        yield tensors
        return
    yield from zip(*(tensor.view(-1).split(CPU_CHUNK) for tensor in tensors), strict=True)


def multiply(tensor: Tensor, factors: Tensor | float) -> None:
    """``tensor *= factors`` in place; a mask of booleans of its shape is converted in the cache on a CPU."""
    if isinstance(factors, float) or tensor.shape != factors.shape:
        tensor.mul_(factors)
        return
    for part, own in chunked(tensor, factors):
        part.mul_(own)


class Scratch:
    """Work space that pieces share, so that it stays in the cache."""

    def __init__(self) -> None:
        self._space: Tensor | None = None

    def like(self, tensor: Tensor) -> Tensor:
        """Uninitialised entries of the shape, dtype and device of ``tensor``."""
        space = self._space
        if space is None or space.numel() < tensor.numel() or space.dtype != tensor.dtype:
            space = self._space = torch.empty(max(tensor.numel(), CPU_CHUNK), dtype=tensor.dtype, device=tensor.device)
        return space[: tensor.numel()].view(tensor.shape)


def groups_within(sizes: Sequence[int], limit: int) -> list[range]:
    """Runs of neighbours whose sizes sum to at most ``limit`` (or that are one)."""
    groups: list[range] = []
    start = total = 0
    for place, size in enumerate(sizes):
        if place > start and total + size > limit:
            groups.append(range(start, place))
            start, total = place, 0
        total += size
    return [*groups, range(start, len(sizes))] if sizes else []


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether every entry of every tensor is a finite number, as one boolean on their device."""
    largest = torch.stack(torch._foreach_norm(list(tensors), ord=math.inf)) if tensors else torch.zeros(1)
    return largest.isfinite().all()


def quantile_cut(tensors: Sequence[Tensor], q: float) -> float:
    """The smallest entry that is not below the quantile ``q`` over all entries of all tensors.

    The quantile is interpolated linearly, as ``numpy.quantile`` does in double; the cut is one of the values, so that
    comparing with it is exact in fp32. Raises ValueError when there are no values, or some are not numbers.
    """
    count = sum(tensor.numel() for tensor in tensors)
    if count == 0:
        raise ValueError("a quantile of no values was asked for")
    place = (count - 1) * q
    rank = min(math.floor(place), count - 1)
    low, high = order_statistics(tensors, rank, min(rank + 1, count - 1))
    part = place - rank
    # From the nearer end, as numpy does, so that the last bit agrees.
    value = low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
    return low if value <= low else high


def order_statistics(tensors: Sequence[Tensor], first: int, second: int) -> tuple[float, float]:
    """The entries at the 0-based ranks ``first <= second`` of all values in ascending order.

    Raises ValueError when some values are not numbers.
    """
    values = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    # Of BERT-large's 302 million 2.4 s on one core: numpy sorts with vector instructions, and selects without.
    ordered: Any = np.sort(values.numpy()) if values.device.type == "cpu" else values.sort().values
    if math.isnan(ordered[-1]):  # NaN is sorted last
        raise ValueError("a quantile of values that are not numbers (NaN) was asked for")
    return float(ordered[first]), float(ordered[second])

"""Pieces of large tensors: on a CPU small enough for its cache, on a GPU large enough to launch few kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

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

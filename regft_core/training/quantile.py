"""An exact quantile of many tensors at once, without putting them into one array and without sorting.

A strided sample brackets the two order statistics between which the quantile lies; one pass counts what
lies below the bracket and keeps what lies inside it (about one value in a hundred), and the order
statistics are selected from what was kept. If the sample missed them, the bracket is widened: the
result never depends on the sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

#: Values of the sample; also the number up to which values are simply put together.
SAMPLE = 1 << 18
#: Values that are looked at at once: on a CPU they and what is computed from them stay in its cache.
CPU_CHUNK, DEVICE_CHUNK = 1 << 16, 1 << 26
#: Half widths of the bracket that are tried, in standard deviations of the sample's quantile; then everything.
WIDTHS = (6.0, 60.0)

NOT_A_NUMBER = "a quantile of values that are not numbers (NaN) was asked for"


class Quantile(NamedTuple):
    """A quantile and the smallest of the values that is not below it.

    ``x >= cut`` and ``x >= value`` choose the same entries; ``cut`` is one of the values, so the
    comparison is exact in their own precision, in which ``value`` may not be representable.
    """

    value: float
    cut: float


def quantile(tensors: Sequence[Tensor], q: float) -> Quantile:
    """The quantile ``q`` over all entries of all tensors, interpolated linearly as ``numpy.quantile`` does in double.

    Args:
        tensors: fp32 tensors of any shape on one device.

    Raises:
        ValueError: there are no values, or some are not numbers.
    """
    count = sum(tensor.numel() for tensor in tensors)
    if count == 0 or not 0 <= q <= 1:
        raise ValueError(f"a quantile between 0 and 1 of at least one value was asked for, not {q} of {count}")
    place = (count - 1) * q
    rank = min(math.floor(place), count - 1)
    low, high = order_statistics(tensors, rank, min(rank + 1, count - 1))
    part = place - rank
    # From the nearer end, as numpy does, so that the last bit agrees.
    value = low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
    return Quantile(value, low if value <= low else high)


def order_statistics(tensors: Sequence[Tensor], first: int, second: int) -> tuple[float, float]:
    """The entries at the 0-based ranks ``first <= second`` of all values in ascending order.

    Raises ValueError when some values are not numbers.
    """
    flat = [tensor.detach().reshape(-1) for tensor in tensors if tensor.numel()]
    count = sum(tensor.numel() for tensor in flat)
    collect = _collect_on_cpu if flat[0].device.type == "cpu" else _collect_on_device
    if count > 4 * SAMPLE:
        sample = _sample(flat, count)
        for width in WIDTHS:
            low, high = _bracket(sample, first / (count - 1), second / (count - 1), width)
            below, inside = collect(flat, low, high)
            if below <= first and second < below + inside.numel():
                return _select(inside, first - below, second - below)
    everything = torch.cat(flat)
    if bool(everything.isnan().any()):
        raise ValueError(NOT_A_NUMBER)
    return _select(everything, first, second)


def _sample(flat: Sequence[Tensor], count: int) -> Tensor:
    """Every n-th value in ascending order; n is odd, so that no column of a matrix is taken again and again."""
    stride = (count // SAMPLE) | 1
    return torch.sort(torch.cat([tensor[::stride] for tensor in flat])).values


def _bracket(sample: Tensor, first: float, second: float, width: float) -> tuple[float, float]:
    """Values of the sample between which both quantiles lie unless it is far from representative."""
    last = sample.numel() - 1
    margin = width * math.sqrt(max(first * (1 - first), 1 / last) * last) + 1
    low = math.floor(first * last - margin)
    high = math.ceil(second * last + margin)
    return (
        float(sample[low]) if low >= 0 else -math.inf,
        float(sample[high]) if high <= last else math.inf,
    )


def _collect_on_cpu(flat: Sequence[Tensor], low: float, high: float) -> tuple[int, Tensor]:
    """How many values are below ``low``, and those from ``low`` to ``high``; ValueError where some are NaN."""
    below, inside = 0, []
    bottom, top = np.float32(low), np.float32(high)
    small, rest = np.empty(CPU_CHUNK, dtype=bool), np.empty(CPU_CHUNK, dtype=bool)
    for tensor in flat:
        values = tensor.numpy()
        for start in range(0, len(values), CPU_CHUNK):
            chunk = values[start : start + CPU_CHUNK]
            under = np.less(chunk, bottom, out=small[: len(chunk)])
            below += int(np.count_nonzero(under))
            # What is small is also at most the top, so the two differ where a value is inside.
            within = np.less_equal(chunk, top, out=rest[: len(chunk)])
            np.logical_xor(within, under, out=within)
            inside.append(chunk[within])
            # A minimum of NaN is NaN; a test of every entry takes longer than all the rest.
            if np.isnan(chunk.min()):
                raise ValueError(NOT_A_NUMBER)
    return below, torch.from_numpy(np.concatenate(inside))


def _collect_on_device(flat: Sequence[Tensor], low: float, high: float) -> tuple[int, Tensor]:
    below, inside = 0, []
    for tensor in flat:
        for chunk in tensor.split(DEVICE_CHUNK):
            small = chunk < low
            below += int(torch.count_nonzero(small))
            inside.append(chunk[(chunk <= high).logical_xor_(small)])
            if bool(chunk.min().isnan()):
                raise ValueError(NOT_A_NUMBER)
    return below, torch.cat(inside)


def _select(values: Tensor, first: int, second: int) -> tuple[float, float]:
    """The entries at two ranks of a tensor small enough to be rearranged."""
    if values.device.type == "cpu":
        arranged = np.partition(values.numpy(), (first, second))
        return float(arranged[first]), float(arranged[second])
    arranged_on_device = torch.sort(values).values
    return float(arranged_on_device[first]), float(arranged_on_device[second])

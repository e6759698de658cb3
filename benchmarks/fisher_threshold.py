"""Time of the global threshold of Child-Tuning-D on values of BERT-large's size, against the usual ways.

    python benchmarks/fisher_threshold.py [--layers 24] [--share 0.3] [--threads 1] [--json FILE]

All ways run in one process on the same values: squares over many orders of magnitude in the shapes of
BERT-large's layers (24 of them are 302 million values, 1.2 GB; the others copy them once or twice).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from regft_core.training.quantile import quantile

HIDDEN, INNER = 1024, 4096
#: Shapes of one layer of BERT-large: attention, its norm, feed-forward, its norm.
LAYER = [
    *[(HIDDEN, HIDDEN), (HIDDEN,)] * 4,
    *[(HIDDEN,)] * 2,
    *[(INNER, HIDDEN), (INNER,), (HIDDEN, INNER), (HIDDEN,)],
    *[(HIDDEN,)] * 2,
]


def values(layers: int) -> list[torch.Tensor]:
    """Squares whose size differs by tensor, as Fisher information does."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for index in range(layers):
        for number, shape in enumerate(LAYER):
            exponent = torch.randn(shape, generator=generator).mul_(2).sub_(12 + number / 3 + index / 8)
            found.append(exponent.exp_())
    return found


def appended(tensors: list[torch.Tensor], share: float) -> float:
    """As in the released code: one array that grows tensor by tensor, then the percentile."""
    everything = np.zeros(0, dtype=np.float32)
    for tensor in tensors:
        everything = np.append(everything, tensor.numpy().ravel())
    return float(np.percentile(everything, 100 * (1 - share)))


def joined(tensors: list[torch.Tensor], share: float) -> float:
    everything = np.concatenate([tensor.numpy().ravel() for tensor in tensors])
    return float(np.percentile(everything, 100 * (1 - share)))


def sorted_(tensors: list[torch.Tensor], share: float) -> float:
    everything = np.sort(np.concatenate([tensor.numpy().ravel() for tensor in tensors]))
    return float(everything[round((1 - share) * (len(everything) - 1))])


def ours(tensors: list[torch.Tensor], share: float) -> float:
    return quantile(tensors, 1 - share).value


def timed(way: Callable[[list[torch.Tensor], float], float], tensors: Any, share: float) -> tuple[float, float]:
    started = time.perf_counter()
    result = way(tensors, share)
    return time.perf_counter() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tensors = values(arguments.layers)
    count = sum(tensor.numel() for tensor in tensors)
    print(f"{count:,} values in {len(tensors)} tensors, share {arguments.share}")
    runs = sorted(timed(ours, tensors, arguments.share) for _ in range(5))
    seconds, value = runs[len(runs) // 2]
    print(f"{'quantile (median of 5)':<32}{seconds:9.3f} s")
    record = {"values": count, "tensors": len(tensors), "share": arguments.share, "seconds": {"quantile": seconds}}
    ways = {"concatenate, np.percentile": joined, "append one by one, np.percentile": appended, "full sort": sorted_}
    for name, way in ways.items():
        taken, other = timed(way, tensors, arguments.share)
        record["seconds"][name] = taken
        print(f"{name:<32}{taken:9.3f} s   {taken / seconds:7.1f} times as long   differs by {abs(other - value):.2g}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

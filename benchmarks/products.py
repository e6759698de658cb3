"""Matrix products in fp32 on a CPU, by torch's own library and as regft multiplies (execution/products.py).

    OMP_NUM_THREADS=1 python benchmarks/products.py

The three products of every kind of linear layer of ``minilm`` (forward, back to the input, back to the weight), in
GFLOP/s, the best of 15; then whole steps of plain fine-tuning, and an evaluation, in CPU seconds, in turn. Where both
are the same library, the ratios are 1.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cost

from regft_core.evaluate.predict import predict
from regft_core.models.products import fast_products, take_fast_products

ROUNDS, STEPS = 5, 4


def by_library(measure: Callable[[], float]) -> tuple[float, float]:
    """What ``measure`` gives with torch's own library, and as regft multiplies."""
    with torch.backends.mkldnn.flags(enabled=False):
        own = measure()
    return own, measure()


def speed(product: Callable[[], Any], operations: int) -> float:
    """GFLOP/s of the fastest of 15 times five."""
    taken = []
    for _ in range(15):
        began = time.process_time()
        for _ in range(5):
            product()
        taken.append((time.process_time() - began) / 5)
    return operations / min(taken) / 1e9


def products() -> None:
    print("| tokens x in x out | forward | to the input | to the weight |", "|---|---|---|---|", sep="\n")
    for tokens in (496, 1024):
        for inner, outer in ((384, 384), (384, 1536), (1536, 384)):
            rows, weight = torch.randn(tokens, inner), torch.randn(outer, inner)
            bias, back = torch.randn(outer), torch.randn(tokens, outer)
            ways: list[Callable[[], Any]] = [
                lambda r=rows, w=weight, b=bias: torch.nn.functional.linear(r, w, b),
                lambda k=back, w=weight: k @ w,
                lambda k=back, r=rows: k.t() @ r,
            ]
            count = 2 * tokens * inner * outer
            found = [by_library(lambda way=way, count=count: speed(way, count)) for way in ways]
            shown = " | ".join(f"{own:.0f}, {fast:.0f}" for own, fast in found)
            print(f"| {tokens} x {inner} x {outer} | {shown} |", flush=True)


def steps(length: int) -> tuple[float, float]:
    """CPU seconds of an optimiser step of 16 rows, and of an evaluation of 256 rows, relative to torch's library."""
    cost.CLOCK[0] = time.process_time
    with tempfile.TemporaryDirectory() as folder:
        bench = cost.Bench(cost.checkpoint("minilm", Path(folder)), cost.tokens(256, length), 16, "cpu")
        loop = bench.loop(next(iter(bench.phases(cost.all_methods(cost.ROOT)["vanilla"])))[1])
        assert loop is not None
        device = loop.trainee.device
        cost.run_steps(loop, 5, device)

        def answer() -> float:
            began = time.process_time()
            predict(loop.trainee.model, bench.data, pad_id=0)
            return time.process_time() - began

        trained = [by_library(lambda: cost.run_steps(loop, STEPS, device)) for _ in range(ROUNDS)]
        answered = [by_library(answer) for _ in range(ROUNDS)]
    step, evaluation = (statistics.median(fast / own for own, fast in pairs) for pairs in (trained, answered))
    return step, evaluation


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    take_fast_products()
    print(f"as regft multiplies: {'oneDNN' if fast_products() else 'as torch does'}; torch: {torch.__version__}\n")
    products()
    print("\n| tokens a row | step | evaluation |", "|---|---|---|", sep="\n")
    for length in (32, 64, 128):
        trained, answered = steps(length)
        print(f"| {length} | {trained:.2f} | {answered:.2f} |", flush=True)


if __name__ == "__main__":
    main()

"""What looking up, checking and pruning cost in a run store of many runs, in CPU seconds.

    python benchmarks/store_size.py --runs 1000 10000

Runs hold a few bytes of weights; the first is committed as any run is, the others are copies of it under other keys.
Looked up: 1,000 keys, half of them there, as a plan of 1,000 runs asks. Verified: the files of every run are hashed.
Kept: pruning after a run, where the ledger says that the budget holds.
Listed: pruning that looks at every run and deletes nothing. Pruned: pruning that deletes the weights of 100 runs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from regft_core.runs.store.ledger import LEDGER
from regft_core.runs.store.run_store import RunStore

#: Runs that the last measurement prunes; keys that the first looks up.
PRUNED, LOOKED_UP = 100, 1000


def filled(path: Path, runs: int) -> RunStore:
    """A store of so many runs."""
    store = RunStore(path)
    identity: dict[str, Any] = {"format": 1, "seed": 0}
    first = store.run_key(identity)
    with store.open(first, identity) as working:
        working.commit({"status": "ok"}, {"weights": {"w": torch.zeros(250)}}, {"curves.csv": "step\n"})
    for number in range(1, runs):
        copy = store.directory(hashlib.sha256(str(number).encode()).hexdigest())
        copy.mkdir(parents=True)
        for file in store.directory(first).iterdir():
            os.link(file, copy / file.name)
    return store


def measured(runs: int) -> dict[str, float]:
    """CPU seconds of each part."""

    def seconds(action: Callable[[], object]) -> float:
        began = time.process_time()
        action()
        return time.process_time() - began

    with tempfile.TemporaryDirectory() as folder:
        store = filled(Path(folder) / "store", runs)
        keys = list(store.keys())
        assert len(keys) == runs
        size = sum((store.directory(key) / "weights.safetensors").stat().st_size for key in keys)
        (store.path / LEDGER).unlink(missing_ok=True)
        wanted = keys[: LOOKED_UP // 2]
        wanted += [hashlib.sha256(key.encode()).hexdigest() for key in wanted]
        found = {"looked up": seconds(lambda: [store.holds(key) for key in wanted])}
        found["verified"] = seconds(store.verify)
        found["listed"] = seconds(lambda: store.prune(size))
        found["kept"] = seconds(lambda: store.prune(size))
        (store.path / LEDGER).unlink()
        found["pruned"] = seconds(lambda: store.prune(size * (runs - PRUNED) // runs))
        return found


def main() -> None:
    """Measure and print a row for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 10_000])
    columns = "looked up", "verified", "kept", "listed", "pruned"
    print(f"| runs | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", sep="\n")
    for runs in parser.parse_args().runs:
        found = measured(runs)
        shown = " | ".join(f"{found[name]:.3f}" for name in columns)
        print(f"| {runs:,} | {shown} |", flush=True)


if __name__ == "__main__":
    main()

"""Runs of a store, committed as phases do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regft_core.disk.canonical import sha256_json
from regft_core.runs.run_folder import StoredRun
from regft_core.runs.store import RunStore

IDENTITY: dict[str, Any] = {"method": "vanilla", "seed": 0, "training": {"learning_rate": 2e-5}}
KEY = sha256_json(IDENTITY)


def tensors(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((3, 2), value), "step": torch.tensor(7), "half": torch.ones(2, dtype=torch.bfloat16)}


def commit(store: RunStore, seed: int = 0, value: float = 1.0, numbers: int = 6) -> StoredRun:
    """Find or train the run, as the phases do."""
    identity = {**IDENTITY, "seed": seed}
    with store.open(sha256_json(identity), identity) as run:
        if run.finished is not None and run.finished.has_weights:
            return run.finished
        return run.commit({"score": seed}, {"weights": {"w": torch.full((numbers,), value)}}, {"curves.csv": "a,b\n"})


def flip_byte(path: Path, byte: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(bytes(content))

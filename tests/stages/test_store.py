"""``regft store``: weights that are shared, and pruned."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from regft_core.disk.canonical import sha256_json
from regft_core.errors import StoreError
from regft_core.runs.outputs import share, take_shared
from regft_core.runs.store import RunStore
from stages.store import _prune
from tests.errors import raises_code


def test_shared_weights_fill_the_store_of_a_clone(tmp_path: Path) -> None:
    store, clone, identity = RunStore(tmp_path / "store", 10), RunStore(tmp_path / "clone"), {"seed": 0}
    key = sha256_json(identity)
    with store.open(key, identity) as run:
        run.commit({}, {"weights": {"w": torch.ones(100)}})
    assert (share(tmp_path, store, [key]), share(tmp_path, store, [key])) == (1, 0)
    take_shared(tmp_path, clone, key)
    stored = clone.get(key)
    assert torch.equal(stored.load_tensors()["w"], torch.ones(100))
    shutil.rmtree(tmp_path / "weights")
    _prune(store)
    with raises_code(StoreError, "no-weights", key):
        share(tmp_path, store, [key])

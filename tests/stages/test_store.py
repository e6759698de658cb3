"""``regft store verify``: what is damaged, and what does not come out the same again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from regft_core.disk.canonical import sha256_json
from regft_core.errors import StoreError
from regft_core.runs.context import project_store
from regft_core.runs.outputs import share, take_shared
from regft_core.runs.project import open_project
from regft_core.runs.store import RunStore
from stages.store import _prune
from tests.errors import raises_code
from tests.small_project import stage


@pytest.fixture
def project(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "project"))


def store_of(root: Path) -> RunStore:
    return project_store(open_project(root))


def test_damage_ends_with_what_to_delete(project: Path) -> None:
    store = store_of(project)
    key = next(key for key in list(store.keys()) if "weights" in store.get(key).tensor_names)  # type: ignore[union-attr]
    (store.directory(key) / "weights.safetensors").write_bytes(b"0" * 8)
    done = stage(project, "store", "verify")
    assert done.returncode == 6
    assert f"  {store.directory(key)}: " in done.stderr
    assert "weights.safetensors" in done.stderr
    assert "delete the folders that are named" in done.stderr


def test_shared_weights_fill_the_store_of_a_clone(tmp_path: Path) -> None:
    store, clone, identity = RunStore(tmp_path / "store", 10), RunStore(tmp_path / "clone"), {"seed": 0}
    key = sha256_json(identity)
    with store.open(key, identity) as run:
        run.commit({}, {"weights": {"w": torch.ones(100)}})
    assert (share(tmp_path, store, [key]), share(tmp_path, store, [key])) == (1, 0)
    take_shared(tmp_path, clone, key)
    stored = clone.get(key)
    assert stored is not None
    assert torch.equal(stored.load_tensors()["w"], torch.ones(100))
    shutil.rmtree(tmp_path / "weights")
    _prune(store)
    with raises_code(StoreError, "no-weights", key):
        share(tmp_path, store, [key])

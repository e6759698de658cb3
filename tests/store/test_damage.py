"""Runs of the store that were damaged: what is named, set aside, mended or still read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.disk.canonical import sha256_json
from regft_core.errors import DamagedRun
from regft_core.runs.run_folder import StoredRun
from regft_core.runs.store import RunStore
from tests.store.runs import IDENTITY, KEY, commit, flip_byte, tensors


def test_a_manifest_that_leads_out_of_the_run_is_refused(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stored = commit(store)
    manifest = json.loads((stored.path / "manifest.json").read_text())
    manifest["files"]["../../secret"] = {"bytes": 1, "sha256": "0"}
    (stored.path / "manifest.json").write_text(json.dumps(manifest))
    assert store.get(stored.key) is None


def test_a_run_moved_under_another_key_is_refused(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stored = commit(store, seed=0)
    other = sha256_json({**IDENTITY, "seed": 1})
    store.directory(other).parent.mkdir(parents=True, exist_ok=True)
    stored.path.rename(store.directory(other))
    assert store.get(other) is None


@pytest.mark.parametrize("byte", [0, 30, -1])
def test_a_damaged_checkpoint_is_not_continued(tmp_path: Path, caplog: pytest.LogCaptureFixture, byte: int) -> None:
    store = RunStore(tmp_path)
    with store.open(KEY, IDENTITY) as run:
        run.save_checkpoint(tensors(1), {"step": 1})
        path = run.path / "checkpoint.safetensors"
    flip_byte(path, byte)
    with store.open(KEY, IDENTITY) as run:
        assert run.load_checkpoint() is None
        assert "its checkpoint is damaged" in caplog.text
        assert list(run.path.iterdir()) == []


def damage(stored: StoredRun, harm: str) -> None:
    weights = stored.path / "weights.safetensors"
    if harm == "flipped weights":
        flip_byte(weights)
    elif harm == "short weights":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif harm == "no manifest":
        (stored.path / "manifest.json").unlink()
    else:
        flip_byte(stored.path / "result.json")


HARMS = ["flipped weights", "short weights", "no manifest", "flipped result"]


@pytest.mark.parametrize("harm", HARMS)
def test_weights_are_read_although_the_run_was_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    store = RunStore(tmp_path)
    damage(commit(store), harm)
    before = {p.name: p.read_bytes() for p in store.directory(KEY).iterdir()}
    assert torch.equal(store.read_intact(lambda: commit(store), StoredRun.load_tensors)["w"], torch.ones(6))
    aside = store.directory(KEY).with_name(f"{KEY}.damaged")
    assert {p.name: p.read_bytes() for p in aside.iterdir()} == before
    assert "is damaged" in caplog.text
    assert str(aside) in caplog.text
    assert "trained again" in caplog.text
    assert list(store.keys()) == [KEY]
    damage(commit(store), harm)
    store.read_intact(lambda: commit(store), StoredRun.load_tensors)
    assert [p.name for p in aside.parent.glob("*.damaged*")] == [aside.name]  # the latest one


def test_prune_removes_what_was_set_aside_first(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    flip_byte(commit(store).path / "weights.safetensors")
    stored = store.read_intact(lambda: commit(store), lambda run: (run.load_tensors(), run)[1])
    os.utime(stored.path, (1, 1))  # older than the damaged one, and still spared
    aside = stored.path.with_name(f"{KEY}.damaged")
    size = sum(p.stat().st_size for p in aside.iterdir())
    assert store.prune((stored.path / "weights.safetensors").stat().st_size + size).keys == ()
    assert aside.is_dir()
    done = store.prune((stored.path / "weights.safetensors").stat().st_size + size - 1, keep=[KEY])
    assert (done.keys, done.freed_bytes, done.remaining_bytes) == (
        (KEY,),
        size,
        (stored.path / "weights.safetensors").stat().st_size,
    )
    assert not aside.exists()
    assert stored.has_weights


def test_a_run_that_another_process_has_mended_is_not_set_aside(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stored = commit(store)
    weights = (stored.path / "weights.safetensors").read_bytes()

    def read(run: StoredRun) -> Any:
        if not read_before:
            read_before.append(True)
            flip_byte(run.path / "weights.safetensors")
            with pytest.raises(DamagedRun) as caught:
                run.load_tensors()
            (run.path / "weights.safetensors").write_bytes(weights)
            raise caught.value
        return run.load_tensors()

    read_before: list[bool] = []
    assert torch.equal(store.read_intact(lambda: commit(store), read)["w"], torch.ones(6))
    assert not stored.path.with_name(f"{KEY}.damaged").exists()

"""The run store: commit and get, checkpoints, budget, weights that are shared."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from pathlib import Path

import pytest
import torch

from regft_core.disk.canonical import sha256_json
from regft_core.errors import RegftError, StoreError
from regft_core.runs.outputs import share, take_shared
from regft_core.runs.run_folder import StoredRun
from regft_core.runs.store import NotStored, RunStore
from tests.errors import raises_code
from tests.store.runs import IDENTITY, KEY, commit, flip_byte, tensors


def test_commit_is_found_again_with_everything_in_it(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "store")
    assert store.get(KEY) is None
    with store.open(KEY, IDENTITY) as run:
        assert run.finished is None
        run.commit(
            {"status": "ok", "loss": 0.25},
            {"weights": tensors(), "search": {"a": torch.zeros(1)}},
            {"predictions/dev.jsonl": '{"é": 1}\n', "raw.bin": b"\0\1"},
        )
    stored = store.get(KEY)
    assert (stored.identity, stored.result) == (IDENTITY, {"status": "ok", "loss": 0.25})
    assert stored.has_weights
    assert stored.tensor_names == ["search", "weights"]
    loaded = stored.load_tensors()
    assert loaded.keys() == tensors().keys()
    assert all(torch.equal(loaded[n], t) and loaded[n].dtype == t.dtype for n, t in tensors().items())
    assert stored.read_bytes("predictions/dev.jsonl").decode() == '{"é": 1}\n'
    assert stored.read_bytes("raw.bin") == b"\0\1"
    assert sorted(stored.files) == ["predictions/dev.jsonl", "raw.bin"]
    assert not list(tmp_path.rglob("*.partial"))
    assert not list(tmp_path.rglob("*.tmp-*"))
    assert list(store.keys()) == [KEY]


def test_a_failed_run_is_a_result_without_weights(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.open(KEY, IDENTITY) as run:
        run.commit({"status": "failed", "error": "loss is NaN at step 3", "final_loss": None})
    stored = store.get(KEY)
    assert not stored.has_weights
    with raises_code(StoreError, "not-in-run", "weights"):
        stored.load_tensors()
    with store.open(KEY, IDENTITY) as run:
        assert run.finished.result["status"] == "failed"


def test_shared_and_strided_tensors_are_stored_in_full(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    given_tensors = {"a": base, "tied": base, "column": base[:, 1], "transposed": base.T, "empty": torch.empty(0, 3)}
    with RunStore(tmp_path).open(KEY, IDENTITY) as run:
        loaded = run.commit({}, {"weights": given_tensors}).load_tensors()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in given_tensors.items())


def test_an_error_in_training_keeps_the_checkpoints_and_frees_the_lock(tmp_path: Path) -> None:
    store = RunStore(tmp_path)

    def train_and_fail() -> None:
        with store.open(KEY, IDENTITY) as run:
            run.save_checkpoint(tensors(), {"step": 1})
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        train_and_fail()
    with store.open(KEY, IDENTITY) as run:
        assert run.load_checkpoint() is not None


def test_a_store_to_look_runs_up_computes_nothing(tmp_path: Path) -> None:
    stored = commit(RunStore(tmp_path))
    store = RunStore(tmp_path, stored_only=True)
    assert store.get(stored.key) is not None
    with pytest.raises(NotStored):
        store.get(sha256_json({"no": "run"}))
    with pytest.raises(NotStored), store.open(KEY, IDENTITY):
        pass


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o007])
def test_files_have_the_rights_of_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        stored = commit(RunStore(tmp_path))
    finally:
        os.umask(before)
    files = [path for path in stored.path.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~mask}
    assert stored.path.stat().st_mode & 0o777 == 0o777 & ~mask


def test_prune_deletes_the_least_recently_used_weights_and_keeps_results(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    runs = [commit(store, seed, numbers=1000) for seed in range(4)]
    for age, stored in enumerate(runs):
        os.utime(stored.path, (1000 - age, 1000 - age))  # the last committed is the oldest
    runs[3].load_tensors()  # now the most recently used
    size = (runs[0].path / "weights.safetensors").stat().st_size
    done = store.prune(2 * size, keep={runs[2].key})
    assert done.keys == (runs[1].key, runs[0].key)
    assert (done.freed_bytes, done.remaining_bytes) == (2 * size, 2 * size)
    again = [store.get(stored.key) for stored in runs]
    assert [s.has_weights for s in again if s] == [False, False, True, True]
    assert [s.result["score"] for s in again if s] == [0, 1, 2, 3]
    assert again[0] is not None
    assert again[0].tensors_sha256() == runs[0].tensors_sha256()
    with raises_code(StoreError, "run-pruned"):
        again[0].load_tensors()
    assert store.prune(0, keep=[s.key for s in runs]).keys == ()
    assert store.prune().keys == ()  # no budget, nothing happens


def test_prune_spares_open_runs_and_drops_abandoned_checkpoints(tmp_path: Path) -> None:
    store, other = RunStore(tmp_path, budget_bytes=0), {**IDENTITY, "seed": 1}
    with store.open(KEY, IDENTITY) as abandoned:
        abandoned.save_checkpoint(tensors(), {})
    with store.open(sha256_json(other), other) as running:
        running.save_checkpoint(tensors(), {})
        assert store.prune().keys == (KEY,)
        assert running.load_checkpoint() is not None
    assert not abandoned.path.exists()


def test_pruned_weights_come_back_only_if_they_are_the_same(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stored = commit(store, value=1.0)
    store.prune(0)
    with store.open(stored.key, stored.identity) as run:
        assert not run.finished.has_weights
        with raises_code(StoreError, "not-reproducible", "weights"):
            run.commit({"score": 9}, {"weights": {"w": torch.full((6,), 2.0)}})
    kept = store.get(stored.key)
    assert kept.result == {"score": 0}
    assert not kept.has_weights
    restored = commit(store, value=1.0)
    assert restored.has_weights
    assert torch.equal(restored.load_tensors()["w"], torch.ones(6))
    store.prune(0)
    with store.open(stored.key, stored.identity) as run:
        replaced = run.commit({"score": 9}, {"weights": {"w": torch.zeros(6)}}, require_same_tensors=False)
    assert replaced.result == {"score": 9}
    assert replaced.has_weights


def test_a_full_disk_is_named_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    with store.open(KEY, IDENTITY) as run:
        run.save_checkpoint(tensors(1), {"step": 1})

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with raises_code(StoreError, "cannot-write", "checkpoint.safetensors"):
                run.save_checkpoint(tensors(2), {"step": 2})
            with raises_code(StoreError, "cannot-write"):
                run.commit({"score": 1}, {"weights": tensors()})
        found = run.load_checkpoint()
        assert found[1] == {"step": 1}
        assert store.get(KEY) is None
        run.commit({"score": 1}, {"weights": tensors()})


def test_shared_weights_fill_the_store_of_a_clone(tmp_path: Path) -> None:
    store, clone, identity = RunStore(tmp_path / "store", 10), RunStore(tmp_path / "clone"), {"seed": 0}
    key = sha256_json(identity)
    with store.open(key, identity) as run:
        run.commit({}, {"weights": {"w": torch.ones(100)}})
    assert (share(tmp_path, store, [key]), share(tmp_path, store, [key])) == (1, 0)
    take_shared(tmp_path, clone, key)
    stored = clone.get(key)
    assert torch.equal(stored.load_tensors()["w"], torch.ones(100))
    store.prune()
    damaged = dict(store.pack(key) or {}) | {"weights.safetensors": b"of another training"}
    store.add(key, damaged)
    assert not store.get(key).has_weights
    take_shared(tmp_path, store, key)  # nothing is trained for what was pruned here
    assert torch.equal(store.get(key).load_tensors()["w"], torch.ones(100))
    shutil.rmtree(tmp_path / "weights")
    flip_byte(store.directory(key) / "weights.safetensors")
    with raises_code(StoreError, "damaged-run", key):
        share(tmp_path, store, [key])
    store.prune()
    with raises_code(StoreError, "no-weights", key):
        share(tmp_path, store, [key])


def test_checkpoints_of_another_environment_are_not_continued(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = RunStore(tmp_path)
    made_in = {"device": "cuda", "threads": 4, "packages": {"torch": "2"}}
    with store.open(KEY, IDENTITY, environment=made_in) as run:
        run.save_checkpoint(tensors(1), {"step": 1})
        run.save_checkpoint(tensors(2), {"step": 2})
    with store.open(KEY, IDENTITY, environment=dict(reversed(made_in.items()))) as run:
        found = run.load_checkpoint()
        assert found[1] == {"step": 2}
    with store.open(KEY, IDENTITY, environment={**made_in, "device": "cpu", "threads": 2}) as run:
        with caplog.at_level(logging.WARNING):
            assert run.load_checkpoint() is None
        assert list(run.path.iterdir()) == []
        run.save_checkpoint(tensors(3), {"step": 1})
    assert "another environment" in caplog.text


def test_the_guard_is_asked_last_and_its_refusal_stores_nothing(tmp_path: Path) -> None:
    store, seen = RunStore(tmp_path), []

    def refuse() -> None:
        temporary = store.directory(KEY).with_name(f"{KEY}.partial") / "commit"
        seen.append(sorted(json.loads((temporary / "manifest.json").read_text())["files"]))
        raise RegftError("code-edited", "the code changed")

    with store.open(KEY, IDENTITY, guard=refuse) as run:
        run.save_checkpoint(tensors(), {"step": 1})
        assert seen == []
        with raises_code(RegftError, "code-edited"):
            run.commit({"score": 1}, {"weights": tensors()}, {"curves.csv": ""})
        assert run.finished is None
        assert run.load_checkpoint() is None  # made by the same process, under the same doubt
        assert list(run.path.iterdir()) == []
    assert seen == [["curves.csv", "identity.json", "result.json", "weights.safetensors"]]
    assert store.get(KEY) is None
    with store.open(KEY, IDENTITY, guard=lambda: seen.append([])) as run:
        run.commit({"score": 1})
    assert len(seen) == 2
    assert store.get(KEY) is not None


def test_weights_that_are_pruned_between_finding_and_reading_are_made_again(tmp_path: Path) -> None:
    """By another process or host, when nobody holds them by a pin."""
    store, other = RunStore(tmp_path), RunStore(tmp_path)
    commit(store)
    pruned: list[str] = []

    def ensured() -> StoredRun:
        found = commit(store)
        if not pruned:
            pruned.extend(other.prune(0).keys)
        return found

    assert torch.equal(store.read_intact(ensured, StoredRun.load_tensors)["w"], torch.ones(6))
    assert pruned == [KEY]

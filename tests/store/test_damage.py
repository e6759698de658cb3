"""A damaged run is set aside and trained again; nothing of it is deleted or overwritten."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import DamagedRun, RegftError
from regft_core.runs.run_folder import StoredRun
from regft_core.runs.store import RunStore
from tests.errors import raises_code
from tests.store.test_store import IDENTITY, KEY, commit, flip_byte, tensors


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

"""Pinned weights are not pruned, whoever prunes, until the pin is taken back or lapses."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest
import torch

from regft_core.runs import killpoints
from regft_core.runs.store import PIN_DAYS, RunStore, run_key
from tests.runs.test_kill import in_child
from tests.runs.test_store import IDENTITY, KEY, commit, tensors

FORK = multiprocessing.get_context("fork")
DAY = 86_400.0


def pin_file(store: RunStore, owner: str) -> Path:
    return store.directory(KEY).with_name(f"{KEY}.pins") / owner


def test_prune_spares_a_pinned_run_until_it_is_unpinned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, other = RunStore(tmp_path), RunStore(tmp_path)  # another cell, process or machine
    first, second = commit(store, 0), commit(store, 1)
    assert store.pin(first.key, "finetune")
    assert store.pin(first.key, second.key)
    assert store.pin(first.key, "finetune")  # once more is the same
    assert store.pins(first.key) == sorted([second.key, "finetune"])
    done = other.prune(0)
    assert done.keys == (second.key,)
    assert (done.remaining_bytes, done.pinned_bytes) == (first.tensor_bytes, first.tensor_bytes)
    assert f"{first.tensor_bytes} bytes are pinned by runs that need them next" in caplog.text
    assert f"lapses after {PIN_DAYS} days" in caplog.text
    store.unpin(first.key, "finetune")
    assert other.prune(0).keys == ()
    store.unpin(first.key, second.key)
    store.unpin(first.key, second.key)
    assert other.prune(0).keys == (first.key,)
    assert not pin_file(store, "x").parent.exists()
    assert not store.pin(first.key, "late")  # the answer says that they must be trained again


def test_pins_disturb_neither_manifests_nor_listings(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stored = commit(store)
    before = sorted(p.name for p in stored.path.iterdir())
    store.pin(KEY, "evaluate")
    assert sorted(p.name for p in stored.path.iterdir()) == before
    assert store.verify() == []
    assert list(store.keys()) == [KEY]
    assert list(store.partials()) == []


def test_a_pin_may_come_before_the_run_and_covers_its_checkpoints(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert not store.pin(KEY, "evaluate")
    with store.open(KEY, IDENTITY) as run:
        run.save_checkpoint(tensors(), {"step": 1})
    assert store.prune(0).keys == ()
    commit(store)
    assert store.prune(0).keys == ()
    assert store.pins(KEY) == ["evaluate"]


def test_a_pin_survives_training_again_and_setting_aside(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stored = commit(store)
    store.prune(0)
    assert not store.pin(KEY, "evaluate")
    commit(store)  # the directory is replaced as a whole
    assert store.prune(0).keys == ()
    (stored.path / "result.json").unlink()
    with store.open(KEY, IDENTITY) as run:
        assert run.finished is None
    restored = commit(store)
    assert store.pins(KEY) == ["evaluate"]
    assert store.prune(restored.tensor_bytes).keys == (KEY,)  # only what was set aside
    assert restored.has_weights


def test_an_expired_pin_is_removed_and_a_renewed_one_counts(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stored = commit(store)
    store.pin(KEY, "old")
    store.pin(KEY, "new")
    now = time.time()
    os.utime(pin_file(store, "old"), (now, now - PIN_DAYS * DAY - 60))
    os.utime(pin_file(store, "new"), (now, now - PIN_DAYS * DAY + 60))
    assert store.prune(0).keys == ()
    assert not pin_file(store, "old").exists()
    assert store.pins(KEY) == ["new"]
    os.utime(pin_file(store, "new"), (0, 0))
    store.pin(KEY, "new")
    assert store.prune(0).keys == ()
    os.utime(pin_file(store, "new"), (0, 0))
    assert store.prune(0).keys == (KEY,)
    assert not stored.has_weights
    assert not pin_file(store, "new").parent.exists()


@pytest.mark.parametrize("owner", ["", "../x", "a/b", ".hidden", "a" * 129, "ü", "a\n"])
def test_an_owner_is_a_plain_name(tmp_path: Path, owner: str) -> None:
    with pytest.raises(ValueError, match="no name for the owner of a pin"):
        RunStore(tmp_path).pin(KEY, owner)
    assert list(tmp_path.iterdir()) == []


def test_a_pin_does_not_wait_for_a_training(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.open(KEY, IDENTITY):
        assert in_child(store.pin, KEY, "evaluate") == 0
    assert store.pins(KEY) == ["evaluate"]


def hold_and_read(path: Path, failures: Path, seed: int) -> None:
    """Pin, make sure of the weights, read them a little later: they must be there."""
    store, identity = RunStore(path), {**IDENTITY, "seed": seed}
    key, owner = run_key(identity), f"owner-{os.getpid()}"
    for _ in range(15):
        if not store.pin(key, owner):
            with store.open(key, identity) as run:
                if run.finished is None or not run.finished.has_weights:
                    run.commit({"score": seed}, {"weights": {"w": torch.ones(6)}})
        time.sleep(0.002)
        try:
            stored = store.get(key)
            assert stored is not None
            stored.load_tensors()
        except Exception as error:
            with failures.open("a") as file:
                file.write(f"{error!r}\n")
        store.unpin(key, owner)


def prune_all_the_time(path: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and not (path / "stop").exists():
        RunStore(path).prune(0)


def test_readers_and_pruners_at_once(tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    readers = [FORK.Process(target=hold_and_read, args=(tmp_path, failures, i % 2)) for i in range(4)]
    pruners = [FORK.Process(target=prune_all_the_time, args=(tmp_path,)) for _ in range(2)]
    for process in (*readers, *pruners):
        process.start()
    for process in readers:
        process.join(60)
    (tmp_path / "stop").touch()
    for process in pruners:
        process.join(60)
    assert [process.exitcode for process in (*readers, *pruners)] == [0] * 6
    assert not failures.exists(), failures.read_text()
    assert RunStore(tmp_path).verify() == []


def test_renewing_a_pin_that_others_take_for_expired(tmp_path: Path) -> None:
    store, stop = RunStore(tmp_path), threading.Event()
    stored = commit(store)
    failures = []

    def prune() -> None:
        while not stop.is_set():
            store.prune(0)

    threads = [threading.Thread(target=prune) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            if not store.pin(KEY, "owner"):
                commit(store)
            time.sleep(0.002)
            if not stored.has_weights:
                failures.append(time.time())
            os.utime(pin_file(store, "owner"), (0, 0))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


def test_killed_while_pinning(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    commit(store)

    def pin() -> None:
        os.environ[killpoints.VARIABLE] = "pin.touched"
        store.pin(KEY, "evaluate")

    assert in_child(pin) == -9
    assert store.pin(KEY, "evaluate")  # its lock went with it
    assert store.pins(KEY) == ["evaluate"]

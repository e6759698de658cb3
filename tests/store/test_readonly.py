"""A run store that one may only read: what is complete in it can be used."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import DamagedRun, StoreError
from regft_core.io import reading
from regft_core.runs.store import RunStore, StoredRun, run_key
from tests.errors import raises_code
from tests.store.test_store import IDENTITY, KEY, commit, flip_byte

AsReader = Callable[..., None]
OTHER: dict[str, Any] = {**IDENTITY, "seed": 1}


def test_finished_runs_are_handed_out_and_others_refused(
    public_path: Path, as_reader: AsReader, caplog: pytest.LogCaptureFixture
) -> None:
    store = RunStore(public_path, budget_bytes=0)
    stored = commit(store)

    def read() -> None:
        found = store.get(KEY)
        assert found is not None
        with store.open(KEY, IDENTITY) as run:
            assert run.finished is not None
            assert run.finished.result == {"score": 0}
            assert torch.equal(run.finished.load_tensors()["w"], torch.ones(6))
            assert run.finished.read_text("curves.csv") == "a,b\n"
            with raises_code(StoreError, "store-read-only"):
                run.commit({"score": 1})
            with raises_code(StoreError, "store-read-only"):
                run.save_checkpoint({}, {})
        with raises_code(StoreError, "store-read-only", "not complete"):
            store.open(run_key(OTHER), OTHER)
        assert store.prune().keys == ()
        assert "may not be deleted by this user" in caplog.text
        assert store.verify() == []

    as_reader(public_path, read)
    assert stored.has_weights


def test_damage_there_is_said_and_nothing_is_renamed(public_path: Path, as_reader: AsReader) -> None:
    store = RunStore(public_path)
    stored = commit(store)
    flip_byte(stored.path / "weights.safetensors")

    def ensure() -> StoredRun:
        with store.open(KEY, IDENTITY) as run:
            assert run.finished is not None
            return run.finished

    def read() -> None:
        with raises_code(StoreError, "store-read-only", "weights.safetensors") as caught:
            store.read_intact(ensure, StoredRun.load_tensors)
        assert not isinstance(caught.value, DamagedRun)

    as_reader(public_path, read)
    assert stored.path.is_dir()


def test_a_run_of_another_user_is_not_taken_for_damaged(public_path: Path, as_reader: AsReader) -> None:
    store = RunStore(public_path)
    secret = commit(store).path / "result.json"

    def read() -> None:
        with raises_code(StoreError, "cannot-read", "result.json", "Permission denied") as caught:
            store.get(KEY)
        assert not isinstance(caught.value, DamagedRun)

    as_reader(public_path, read, secret)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ESTALE, errno.ENOMEM])
def test_a_busy_machine_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    store = RunStore(tmp_path)
    stored = commit(store)

    def refuse(path: Path) -> bytes:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(reading, "_content", refuse)
        with raises_code(StoreError, "cannot-read"):
            store.open(KEY, IDENTITY)
    assert stored.path.is_dir()
    assert store.get(KEY) is not None


def test_a_full_disk_does_not_hide_a_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    commit(store)
    (tmp_path / "runs" / KEY[:2] / f"{KEY}.lock").unlink()
    system_open = os.open

    def full(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return system_open(path, flags, mode)

    monkeypatch.setattr(os, "open", full)
    with store.open(KEY, IDENTITY) as run:
        assert run.finished is not None
    with raises_code(StoreError, "cannot-write"):
        store.open(run_key(OTHER), OTHER)

"""Weights that a living process needs are not pruned, whoever prunes; correctness does not depend on it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch

from regft_core.errors import StoreError
from regft_core.runs.store import locks
from regft_core.runs.store.run_store import NEEDED_DAYS, RunStore, run_key
from tests.store.test_store import IDENTITY, KEY, commit, tensors

FORK = multiprocessing.get_context("fork")
DAY = 86_400.0


def files(store: RunStore) -> list[Path]:
    return sorted((store.path / "needed").glob("*"))


def test_prune_spares_what_is_needed_until_it_is_done(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, other = RunStore(tmp_path), RunStore(tmp_path)
    first, second, third = (commit(store, seed) for seed in range(3))
    with store.needed([first.key, second.key, first.key]) as needed:
        done = other.prune(0)
        assert done.keys == (third.key,)
        assert done.needed_bytes == done.remaining_bytes == first.tensor_bytes + second.tensor_bytes
        assert f"{done.needed_bytes} bytes are needed by processes that work" in caplog.text
        needed.done([first.key, second.key, third.key])
        assert other.prune(0).keys == (second.key,)  # the first was given twice, and done once
        needed.done([first.key])
        assert other.prune(0).keys == (first.key,)
    assert files(store) == []


def test_what_is_needed_ends_with_the_block_also_when_that_raises(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    commit(store)

    def work() -> None:
        with store.needed([KEY]):
            assert store.prune(0).keys == ()
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert store.prune(0).keys == (KEY,)


def test_a_key_may_be_needed_before_its_run_is_there_and_covers_its_checkpoints(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.needed([KEY]):
        with store.open(KEY, IDENTITY) as run:
            run.save_checkpoint(tensors(), {"step": 1})
        assert store.prune(0).keys == ()
        stored = commit(store)
        assert store.prune(0).keys == ()
        (stored.path / "result.json").unlink()
        with store.open(KEY, IDENTITY) as run:
            assert run.finished is None  # set aside
        restored = commit(store)
        assert store.prune(restored.tensor_bytes).keys == (KEY,)  # only what was set aside
        assert restored.has_weights
        assert list(store.keys()) == [KEY]
        assert store.verify() == []


def need(path: Path, keys: list[str], published: Event) -> None:
    with RunStore(path).needed(keys):
        published.set()
        time.sleep(600)


@contextmanager
def needing(path: Path, *keys: str) -> Iterator[int]:
    """Another process that needs ``keys``; its id."""
    published = FORK.Event()
    process = FORK.Process(target=need, args=(path, list(keys), published))
    process.start()
    try:
        assert published.wait(60)
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()


def test_two_processes_side_by_side_spare_what_the_other_needs(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    first, second, third = (commit(store, seed) for seed in range(3))
    with needing(tmp_path, first.key), store.needed([second.key]):
        assert store.prune(0).keys == (third.key,)
        assert len(files(store)) == 2


def test_what_a_killed_process_needed_counts_no_more(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    commit(store)
    with needing(tmp_path, KEY) as pid:
        assert store.prune(0).keys == ()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with store.needed([]):
        assert len(files(store)) == 1  # the dead one's is removed by whoever comes next, also without pruning
    assert store.prune(0).keys == (KEY,)


def test_what_another_host_needs_counts_for_a_day_after_it_was_last_heard_of(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    first, second = commit(store, 0), commit(store, 1)
    for host, key, age in (("near", first.key, NEEDED_DAYS * DAY - 60), ("far", second.key, NEEDED_DAYS * DAY + 60)):
        file = tmp_path / "needed" / f"{host}.4711.1.0123abcd"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{key}\n")
        os.utime(file, (time.time() - age, time.time() - age))
    assert store.prune(0).keys == (second.key,)
    assert [file.name for file in files(store)] == ["near.4711.1.0123abcd"]


def test_a_process_that_works_renews_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(locks, "_thread", None)  # the one that runs sleeps for longer
    store = RunStore(tmp_path)
    with store.needed([KEY]):
        (file,) = files(store)
        os.utime(file, (0, 0))
        end = time.monotonic() + 60
        while file.stat().st_mtime == 0 and time.monotonic() < end:
            time.sleep(0.01)
        assert file.stat().st_mtime > time.time() - 3600


def test_a_line_that_is_being_written_takes_nothing_back(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    commit(store)
    with store.needed([KEY]):
        (file,) = files(store)
        with file.open("a") as unfinished:
            unfinished.write(f"done {KEY}")
        assert store.prune(0).keys == ()
        with file.open("a") as finished:
            finished.write("\n")
        assert store.prune(0).keys == (KEY,)


def test_nothing_is_pruned_while_nobody_knows_what_is_needed(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stored = commit(store)
    (tmp_path / "needed").write_text("")  # no folder
    with pytest.raises(StoreError, match="which weights are needed cannot be read"):
        store.prune(0)
    assert stored.has_weights


def train_and_read(path: Path, failures: Path, seed: int) -> None:
    """Need a run, make sure of its weights, read them a little later; pruned ones are trained again."""
    store, identity = RunStore(path), {**IDENTITY, "seed": seed}
    key = run_key(identity)
    for _ in range(15):
        with store.needed([key]) as needed:
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
            needed.done([key])


def prune_all_the_time(path: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and not (path / "stop").exists():
        RunStore(path).prune(0)


def test_readers_and_pruners_at_once(tmp_path: Path) -> None:
    """Who needs a run before it makes sure of the weights, under the run's lock, always finds them."""
    failures = tmp_path / "failures"
    readers = [FORK.Process(target=train_and_read, args=(tmp_path, failures, i % 2)) for i in range(4)]
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
    assert files(RunStore(tmp_path)) == []

"""Kept vectors on disk: bits, damage, two writers at a time, bounds."""

from __future__ import annotations

import logging
import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from regft_core.disk.canonical import sha256_text
from regft_core.runs import caches
from regft_core.runs.caches import FeatureFiles
from regft_core.runs.store import RunStore
from tests.store.test_store import commit, flip_byte


def vectors(seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(7, 5, generator=torch.Generator().manual_seed(seed)).to(dtype)


def written(store: Path, *seeds: int, dtype: torch.dtype = torch.float32) -> list[Path]:
    """The files of some vectors, in this order."""
    files = FeatureFiles(store)
    for seed in seeds:
        files.put(sha256_text(str(seed)), vectors(seed, dtype))
    files.write()
    return [store / "features" / key[:2] / f"{key}.safetensors" for key in map(sha256_text, map(str, seeds))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_read_has_the_bits_of_what_was_put(tmp_path: Path, dtype: torch.dtype) -> None:
    written(tmp_path, 1, dtype=dtype)
    found = FeatureFiles(tmp_path).get(sha256_text("1"))
    assert found is not None
    assert found.dtype == dtype
    assert torch.equal(found, vectors(1, dtype))
    assert found.data_ptr() % 16 == 0
    assert FeatureFiles(tmp_path).get(sha256_text("2")) is None


def test_nothing_is_on_disk_before_it_is_written_and_it_is_read_all_the_same(tmp_path: Path) -> None:
    files, key = FeatureFiles(tmp_path), sha256_text("1")
    files.put(key, vectors(1))
    assert list(caches.feature_files(tmp_path)) == []
    found = files.get(key)
    assert found is not None
    assert torch.equal(found, vectors(1))


@pytest.mark.parametrize("harm", ["flipped", "cut", "of another key"])
def test_a_damaged_file_is_said_and_written_again(tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    [path, other] = written(tmp_path, 1, 2)
    if harm == "flipped":
        flip_byte(path)
    else:
        path.write_bytes(path.read_bytes()[:20] if harm == "cut" else other.read_bytes())
    assert [path for path, _ in RunStore(tmp_path).verify()] == [path]
    with caplog.at_level(logging.WARNING):
        assert FeatureFiles(tmp_path).get(sha256_text("1")) is None
    assert f"{path} is damaged" in caplog.text
    written(tmp_path, 1)
    assert RunStore(tmp_path).verify() == []


def test_two_processes_write_the_same_batches_at_a_time(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=written, args=(tmp_path, *range(40))) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert RunStore(tmp_path).verify() == []
    assert len(list((tmp_path / "features").rglob("*.*"))) == 40  # and no temporary file


def test_the_least_recently_used_go_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = written(tmp_path, *range(4))
    for age, path in enumerate(paths):
        os.utime(path, (1000 - age, 1000 - age))
    FeatureFiles(tmp_path).get(paths[3].stem)  # the oldest, and now the most recently used
    monkeypatch.setattr(caches, "LIMIT_BYTES", 3 * paths[0].stat().st_size)
    [new] = written(tmp_path, 9)
    assert {path for _, _, path in caches.feature_files(tmp_path)} == {paths[0], paths[3], new}


def test_pruning_a_store_takes_vectors_by_their_last_use_too(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = commit(store, numbers=1000)
    [old, new] = written(tmp_path, 1, 2)
    for path, used in ((old, 1000), (run.path / "used", 2000), (new, 3000)):
        os.utime(path, (used, used))
    one = old.stat().st_size
    done = store.prune((run.path / "weights.safetensors").stat().st_size + one)
    assert (done.freed_bytes, done.keys) == (one, ())
    assert store.prune(one).keys == (run.key,)
    assert [path for _, _, path in caches.feature_files(tmp_path)] == [new]
    assert store.prune(0).remaining_bytes == 0

"""Runs shared through object storage: fetched, published once, weights that come back, damage and outages named."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from regft_core.config.schema.execution import StoreConfig
from regft_core.errors import StoreError
from regft_core.runs.lookup import LookupStore, NotStored
from regft_core.runs.remote import Remote
from regft_core.runs.store import RunStore
from regft_core.runs.stored import run_key

IDENTITY = {"number": 1}
KEY = run_key(IDENTITY)
URL = "memory://bucket/regft"


@pytest.fixture(autouse=True)
def memory() -> Iterator[Any]:
    """An empty object storage in this process."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield fs
    fs.store.clear()


def host(path: Path) -> RunStore:
    return RunStore(path, remote=Remote(URL))


def commit(store: RunStore, by: str = "one") -> Any:
    with store.open(KEY, IDENTITY) as run:
        assert run.finished is None
        return run.commit({"by": by}, {"weights": {"w": torch.ones(3)}}, {"predictions/dev.jsonl": "{}\n"})


def test_what_one_host_finished_another_has(tmp_path: Path) -> None:
    commit(host(tmp_path / "one"))
    other = host(tmp_path / "other")
    found = other.get(KEY)
    assert found is not None
    assert (found.result, found.read_text("predictions/dev.jsonl")) == ({"by": "one"}, "{}\n")
    assert torch.equal(found.load_tensors()["w"], torch.ones(3))
    assert other.verify() == []
    assert LookupStore(tmp_path / "third", remote=Remote(URL)).get(KEY).result == {"by": "one"}
    with pytest.raises(NotStored):
        LookupStore(tmp_path / "third", remote=Remote(URL)).get(run_key({"number": 2}))


def test_of_two_hosts_one_publishes_and_the_other_takes_its_run(
    tmp_path: Path, memory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = host(tmp_path / "one"), host(tmp_path / "other")
    with other.open(KEY, IDENTITY) as run:  # both train: neither sees the other's folder
        commit(one, "one")
        with caplog.at_level(logging.WARNING):
            assert run.commit({"by": "other"}, {"weights": {"w": torch.ones(3)}}).result == {"by": "one"}
    assert "was completed by another host" in caplog.text
    found = other.get(KEY)
    assert found is not None
    assert found.files == ["predictions/dev.jsonl"]
    folders = {path.split(KEY)[1].split("/")[1] for path in memory.find(f"/bucket/regft/runs/{KEY[:2]}/{KEY}")}
    assert len(folders) == 2  # the manifest, and the one place that it names


def test_pruned_weights_come_back(tmp_path: Path) -> None:
    store = host(tmp_path)
    commit(store)
    store.prune(0)
    pruned = store.get(KEY)
    assert pruned is not None
    assert not pruned.has_weights
    with store.open(KEY, IDENTITY) as run:
        assert run.finished is not None
        assert torch.equal(run.finished.load_tensors()["w"], torch.ones(3))


def test_an_upload_that_was_killed_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Any) -> None:
    original = type(memory).pipe_file

    def until_the_manifest(self: Any, path: str, value: bytes, mode: str = "overwrite", **named: Any) -> None:
        if path.endswith("manifest.json"):
            raise OSError("connection reset")
        original(self, path, value, mode=mode, **named)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "pipe_file", until_the_manifest)
        with pytest.raises(StoreError, match=r"store.remote 'memory://.*connection reset"):
            commit(host(tmp_path / "one"))
    assert host(tmp_path / "one").get(KEY) is None  # not here either: it would never be published
    assert host(tmp_path / "other").get(KEY) is None
    assert commit(host(tmp_path / "other"), "other").result == {"by": "other"}


def test_a_manifest_that_leads_elsewhere_or_lies_is_refused(tmp_path: Path, memory: Any) -> None:
    commit(host(tmp_path / "one"))
    place = f"/bucket/regft/runs/{KEY[:2]}/{KEY}/manifest.json"
    good = json.loads(memory.cat_file(place))
    bad = {**good, "files": {"../../escaped": next(iter(good["files"].values()))}}
    memory.pipe_file(place, json.dumps(bad).encode())
    with pytest.raises(StoreError, match="names files outside of the run"):
        host(tmp_path / "other").get(KEY)
    assert not list(tmp_path.rglob("escaped"))
    memory.pipe_file(place, json.dumps(good).encode())
    memory.pipe_file(f"{place.removesuffix('manifest.json')}{good['place']}/result.json", b'{"by": "nobody"}')
    with pytest.raises(StoreError, match=r"is damaged: .*result.json"):
        host(tmp_path / "other").get(KEY)
    assert not (tmp_path / "other" / "runs" / KEY[:2] / KEY).exists()


def test_a_place_is_a_url_of_a_kind_that_is_installed() -> None:
    assert StoreConfig(remote="s3://bucket/regft").remote == "s3://bucket/regft"
    with pytest.raises(ValueError, match="remote"):
        StoreConfig(remote="bucket/regft")
    with pytest.raises(StoreError, match="install what it names"):
        Remote("nonsense://bucket")

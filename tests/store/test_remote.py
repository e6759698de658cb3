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

from regft_core.errors import StoreError
from regft_core.runs.code import one_moment
from regft_core.runs.store.lookup import LookupStore, NotStored
from regft_core.runs.store.remote import Remote
from regft_core.runs.store.run_store import RunStore
from regft_core.runs.store.stored_run import run_key
from regft_core.schema.execution import StoreConfig
from tests.errors import raises_code

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
    restored = other.restore(KEY)
    assert restored is not None
    assert torch.equal(restored.load_tensors()["w"], torch.ones(3))
    assert other.verify() == []
    assert LookupStore(tmp_path / "third", remote=Remote(URL)).get(KEY).result == {"by": "one"}
    with pytest.raises(NotStored):
        LookupStore(tmp_path / "third", remote=Remote(URL)).get(run_key({"number": 2}))


def test_a_plan_of_many_runs_asks_for_listings_not_for_every_key(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(host(tmp_path / "one"))
    planned = [run_key({"number": number}) for number in range(1, 1001)]
    requests: list[str] = []
    for name in ("ls", "cat_file"):
        original = getattr(type(memory), name)

        def counted(self: Any, path: str, *rest: Any, own: Any = original, **named: Any) -> Any:
            requests.append(path)
            return own(self, path, *rest, **named)

        monkeypatch.setattr(type(memory), name, counted)
    other = host(tmp_path / "other")
    with one_moment():
        found = [key for key in planned if other.get(key) is not None]
    assert found == [KEY]
    folders = {key[:2] for key in planned}
    assert len(requests) <= len(folders) + 2 < 300
    # What other hosts finish meanwhile is seen once the plan is made, and by who opens a run at any time.
    late = {"number": 2}
    with one_moment():
        assert other.get(planned[1]) is None
        with host(tmp_path / "one").open(planned[1], late) as run:
            run.commit({"by": "late"})
        with other.open(planned[1], late) as run:
            assert run.finished is not None
    assert host(tmp_path / "third").get(planned[1]) is not None


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


def test_who_looks_a_run_up_fetches_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Any) -> None:
    """A driver looks up every run of a grid, and reads the weights of none."""
    commit(host(tmp_path / "one"))
    other, fetched = host(tmp_path / "other"), list[str]()
    original = type(memory).get_file

    def noting(self: Any, source: str, target: str, **named: Any) -> None:
        fetched.append(source.rsplit("/", 1)[1])
        original(self, source, target, **named)

    monkeypatch.setattr(type(memory), "get_file", noting)
    for _ in range(2):
        found = other.get(KEY)
        assert found is not None
        assert (found.result, found.has_weights, found.tensor_names) == ({"by": "one"}, False, ["weights"])
    assert sorted(fetched) == ["dev.jsonl", "identity.json", "result.json"]
    assert other.verify() == []
    with other.open(KEY, IDENTITY) as run:
        assert run.finished is not None
        assert torch.equal(run.finished.load_tensors()["w"], torch.ones(3))
    assert fetched.count("weights.safetensors") == 1
    restored = other.restore(KEY)
    assert restored is not None
    assert restored.has_weights
    assert fetched.count("weights.safetensors") == 1


def test_a_look_up_does_not_take_weights_that_are_here(tmp_path: Path) -> None:
    """Without a lock: the run may have been fetched whole since it was not found."""
    commit(host(tmp_path / "one"))
    other = host(tmp_path / "other")
    assert other.restore(KEY) is not None
    assert Remote(URL).fetch(KEY, other.directory(KEY), tensors=False)
    found = other.get(KEY)
    assert found is not None
    assert found.has_weights


def test_what_is_fetched_counts_in_the_budget(tmp_path: Path) -> None:
    commit(host(tmp_path / "one"))
    other = host(tmp_path / "other")
    other.path.mkdir()
    assert other.prune(1).remaining_bytes == 0  # a look at the whole store, which counts for a day
    assert other.restore(KEY) is not None
    assert other.prune(1).keys == (KEY,)


def test_an_answer_that_is_lost_does_not_undo_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Any
) -> None:
    """The client tries again by itself and is refused by the manifest that its first try has written."""
    original = type(memory).pipe_file

    def twice(self: Any, path: str, value: bytes, mode: str = "overwrite", **named: Any) -> None:
        original(self, path, value, mode=mode, **named)
        if mode == "create":
            original(self, path, value, mode=mode, **named)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "pipe_file", twice)
        assert commit(host(tmp_path / "one")).result == {"by": "one"}
    restored = host(tmp_path / "other").restore(KEY)
    assert restored is not None
    assert torch.equal(restored.load_tensors()["w"], torch.ones(3))


@pytest.mark.parametrize("arrived", [True, False])
def test_a_storage_that_fails_at_the_last_write_is_asked_what_became_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Any, arrived: bool
) -> None:
    original = type(memory).pipe_file

    def failing(self: Any, path: str, value: bytes, mode: str = "overwrite", **named: Any) -> None:
        if mode != "create" or arrived:
            original(self, path, value, mode=mode, **named)
        if mode == "create":
            raise OSError("409: a conflicting operation")

    monkeypatch.setattr(type(memory), "pipe_file", failing)
    if arrived:
        assert commit(host(tmp_path / "one")).result == {"by": "one"}
    else:
        with raises_code(StoreError, "remote-unreachable", "409"):
            commit(host(tmp_path / "one"))


def test_who_may_not_delete_there_discards_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Any
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("no rights to delete")

    one, other = host(tmp_path / "one"), host(tmp_path / "other")
    with other.open(KEY, IDENTITY) as run:
        commit(one, "one")
        monkeypatch.setattr(type(memory), "rm", refused)
        assert run.commit({"by": "other"}, {"weights": {"w": torch.ones(3)}}).result == {"by": "one"}


def test_an_upload_that_was_killed_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: Any) -> None:
    original = type(memory).pipe_file

    def until_the_manifest(self: Any, path: str, value: bytes, mode: str = "overwrite", **named: Any) -> None:
        if path.endswith("manifest.json"):
            raise OSError("connection reset")
        original(self, path, value, mode=mode, **named)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "pipe_file", until_the_manifest)
        with raises_code(StoreError, "remote-unreachable", "memory://", "connection reset"):
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
    with raises_code(StoreError, "damaged-run"):
        host(tmp_path / "other").get(KEY)
    assert not list(tmp_path.rglob("escaped"))
    memory.pipe_file(place, json.dumps(good).encode())
    memory.pipe_file(f"{place.removesuffix('manifest.json')}{good['place']}/result.json", b'{"by": "nobody"}')
    with raises_code(StoreError, "damaged-run", "result.json"):
        host(tmp_path / "other").get(KEY)
    assert not (tmp_path / "other" / "runs" / KEY[:2] / KEY).exists()


def test_a_place_is_a_url_of_a_kind_that_is_installed() -> None:
    assert StoreConfig(remote="s3://bucket/regft").remote == "s3://bucket/regft"
    with pytest.raises(ValueError, match="remote"):
        StoreConfig(remote="bucket/regft")
    with raises_code(StoreError, "bad-remote"):
        Remote("nonsense://bucket")

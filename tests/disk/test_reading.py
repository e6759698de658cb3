"""The one reader of JSON: every kind of damage is one error, and nothing waits or crashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from regft_core.disk.reading import read_json, read_record
from regft_core.errors import StoreError
from tests.errors import raises_code

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

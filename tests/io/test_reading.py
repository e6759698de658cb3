from __future__ import annotations

from pathlib import Path

from regft_core.errors import StoreError
from regft_core.io.reading import read_json
from tests.errors import raises_code


def test_unreadable_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": ')
    with raises_code(StoreError, "not-json", "x.json"):
        read_json(tmp_path / "x.json")
    with raises_code(StoreError, "file-missing", "y.json"):
        read_json(tmp_path / "y.json")

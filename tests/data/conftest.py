"""A project directory and small files for the tests of the data package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.data.examples import Example
from regft_core.data.read_split import Declaration, read_split
from regft_core.schema.sources import FilesSource
from regft_core.schema.tasks import ColumnsConfig


@pytest.fixture
def declare() -> Callable[..., Declaration]:
    """A declaration of a two-class set with columns text and label, changed by keyword."""

    def build(**changes: Any) -> Declaration:
        columns = changes.pop("columns", {})
        values: dict[str, Any] = {"kind": "classification", "labels": ("bad", "good"), **changes}
        return Declaration(columns=ColumnsConfig.model_validate({"text": "text", **columns}), **values)

    return build


@pytest.fixture
def read(tmp_path: Path, declare: Callable[..., Declaration]) -> Callable[..., list[Example]]:
    """Write ``content`` to ``data/<name>`` and read it as a task's split."""

    def run(name: str, content: str | bytes, **changes: Any) -> list[Example]:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_split(tmp_path, "mine", FilesSource(kind="files"), name, declare(**changes)).examples

    return run

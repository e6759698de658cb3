from __future__ import annotations

import os
from pathlib import Path

import pytest

from regft_core.data.examples import Example, write_jsonl
from regft_core.errors import DataError
from regft_core.phases import phase_data
from regft_core.phases.phase_data import rows_of

OLD_NS = 1_000_000_000_000_000_000


def written(path: Path, text: str, *, young: bool = False) -> list[Example]:
    """Write two rows; unless ``young``, the file looks as if it had been there for years."""
    rows = [Example(str(i), text, None, i) for i in range(2)]
    write_jsonl(path, rows)
    if not young:
        os.utime(path, ns=(OLD_NS, OLD_NS))
    return rows


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    seen: list[Path] = []
    read = phase_data.read_jsonl
    monkeypatch.setattr(phase_data, "read_jsonl", lambda path: seen.append(path) or read(path))
    phase_data._kept_rows.cache_clear()
    return seen


def test_a_set_is_read_once_and_again_when_it_was_written(tmp_path: Path, reads: list[Path]) -> None:
    path = tmp_path / "dev.jsonl"
    rows = written(path, "one")
    first = rows_of(path)
    first.clear()  # what a caller does to its list is its own affair
    assert rows_of(path) == rows
    assert len(reads) == 1
    other = written(path, "two")  # same size, same time: only the file is another
    assert rows_of(path) == other
    assert len(reads) == 2


def test_a_young_or_large_file_is_read_every_time(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dev.jsonl"
    rows = written(path, "one", young=True)
    assert rows_of(path) == rows_of(path) == rows
    assert len(reads) == 2
    written(path, "one")
    monkeypatch.setattr(phase_data, "KEPT_BYTES", 10)
    assert rows_of(path) == rows_of(path) == rows
    assert len(reads) == 4


def test_an_absent_set_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dev\.jsonl: cannot be read .*run the stage that writes it"):
        rows_of(tmp_path / "dev.jsonl")

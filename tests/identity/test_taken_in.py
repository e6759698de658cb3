"""What came after a process began is refused: it may have taken in what was there before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import regft_core
from regft_core.io.canonical import sha256_file
from regft_core.io.file_states import FileState, file_state
from regft_core.runs.identity import taken_in
from regft_core.runs.identity.taken_in import other_files, other_packages

OLD_NS = 1_000_000_000_000_000_000


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has met nothing yet."""
    monkeypatch.setattr(taken_in, "_packages", {})
    monkeypatch.setattr(taken_in, "_files", {})


def known(path: Path, *, old: bool = True) -> dict[str, tuple[FileState | None, str]]:
    """A data file as the guard tells of it; ``old``: with times of before this process."""
    state = file_state(str(path))
    if state is not None and old:
        state = state._replace(mtime_ns=OLD_NS, ctime_ns=OLD_NS)
    return {str(path): (state, sha256_file(path))}


def test_a_data_file_counts_as_it_was_met_first(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text("one")
    assert other_files(known(path)) == []
    path.write_text("two")
    assert other_files(known(path)) == [str(path)]
    path.write_text("one")
    assert other_files(known(path, old=False)) == []  # what it was is known


def test_a_data_file_that_was_written_after_the_process_began_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text("one")
    os.utime(path, ns=(OLD_NS, OLD_NS))  # the time of change cannot be set
    assert other_files(known(path, old=False)) == [str(path)]


def test_a_package_counts_as_it_was_met_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert other_packages({"numpy": "1.0", "absent": None}) == []
    assert other_packages({"numpy": "1.0", "absent": None}) == []
    assert other_packages({"numpy": "2.0", "absent": "1.0"}) == ["numpy", "absent"]
    assert other_packages({"numpy": None}) == ["numpy"]


def test_a_package_that_was_installed_after_the_process_began_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "late_kit-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: late_kit\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert other_packages({"late_kit": "1.0"}) == ["late_kit"]
    monkeypatch.setattr(regft_core, "LOADED_AT_NS", file_state(str(metadata)).ctime_ns + 10**9)  # type: ignore[union-attr]
    assert other_packages({"late_kit": "1.0"}) == []

"""What is kept about files holds exactly until they change."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from regft_core.io.file_states import Missing, content_sha256
from regft_core.runs.identity import file_states
from regft_core.runs.store import ledger


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder that is older than the clock of its file system is coarse."""
    folder = tmp_path / "package"
    (folder / "inner").mkdir(parents=True)
    (folder / "rows.jsonl").write_text("one\n")
    time.sleep(file_states.RACY_NS / 1e9 + 0.05)
    return folder


def test_a_file_is_hashed_again_only_when_it_was_written(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = old / "rows.jsonl", []
    real = file_states.sha256_file
    monkeypatch.setattr(file_states, "sha256_file", lambda name: asked.append(name) or real(name))
    first = content_sha256(path)
    assert content_sha256(path) == first
    assert len(asked) == 1
    state = path.stat()
    path.write_text("two\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # the size and the time of before
    assert content_sha256(path) == real(path) != first
    other = old / "other"
    other.write_text("sly\n")
    os.replace(other, path)
    assert content_sha256(path) == real(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        content_sha256(path)


@pytest.mark.parametrize(
    "made", ["absent.py", "later/__init__.py", "later/deep/__init__.py", "inner/__init__.py", "rows.jsonl.py"]
)
def test_a_file_that_appears_is_seen_wherever_it_would_be(old: Path, made: str) -> None:
    names = ["absent.py", "later/__init__.py", "later/deep/__init__.py", "inner/__init__.py", "rows.jsonl.py"]
    missing = Missing([str(old / name) for name in names])
    assert missing.still()
    for parent in reversed((old / made).relative_to(old).parents):
        (old / parent).mkdir(exist_ok=True)
        assert missing.still()  # a folder is no file
    time.sleep(file_states.RACY_NS / 1e9 + 0.05)
    assert missing.still()
    (old / made).write_text("")
    assert not missing.still()
    (old / made).unlink()
    assert missing.still()


def test_one_look_at_a_folder_stands_for_all_that_it_lacks(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Missing([str(old / "no" / f"module_{number}.py") for number in range(50)])
    looks = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda *given, **named: looks.append(given) or real(*given, **named))
    assert missing.still()
    assert len(looks) == 1


def test_a_ledger_is_read_on_and_from_its_start_after_a_look(tmp_path: Path) -> None:
    ledger.note_look(tmp_path, 100)
    for size in (10, 20):
        ledger.note_written(tmp_path, size)
    assert ledger.at_most(tmp_path) == 130
    ledger.note_written(tmp_path, 5)
    assert ledger.at_most(tmp_path) == ledger.at_most(tmp_path) == 135
    ledger.note_look(tmp_path, 40)
    assert ledger.at_most(tmp_path) == 40
    ledger.note_written(tmp_path, 1)
    assert ledger.at_most(tmp_path) == 41
    with (tmp_path / ledger.LEDGER).open("a") as file:
        file.write("damaged\n")
    assert ledger.at_most(tmp_path) is None
    (tmp_path / ledger.LEDGER).write_text(f"held 7 {int(time.time() - 2 * ledger.LOOK_SECONDS)}\n")
    assert ledger.at_most(tmp_path) is None

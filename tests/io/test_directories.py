from __future__ import annotations

import errno
from pathlib import Path

import pytest

from regft_core.errors import StoreError
from regft_core.io import files
from regft_core.io.files import atomic_directory, replace_directory
from tests.errors import raises_code


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
    fill("second")
    assert (target / "sub" / "file").read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("exchange", [True, False])
def test_replace_directory_with_and_without_an_atomic_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    replace_directory(tmp_path / "new", tmp_path / "old")
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == ["old", "old/new.txt"]

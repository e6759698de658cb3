from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core import io
from regft_core.errors import StoreError
from tests.errors import raises_code

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_canonical_json_holds_the_whole_value(value: Any) -> None:
    text = io.canonical_json(value)
    assert json.loads(text) == value
    assert io.canonical_json(json.loads(text)) == text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_json_cannot_say_are_refused_with_their_place(tmp_path: Path, number: float) -> None:
    for function in (io.canonical_json, lambda value: io.write_json(tmp_path / "x.json", value)):
        with pytest.raises(ValueError, match=r"value\.runs\[1\]\.loss: JSON has no"):
            function({"runs": [{"loss": 0.5}, {"loss": number}]})
    assert list(tmp_path.iterdir()) == []


def test_other_types_are_refused_with_their_place() -> None:
    with pytest.raises(TypeError, match=r"value\.a: set is not a JSON value"):
        io.canonical_json({"a": {1}})
    with pytest.raises(TypeError, match="key 1 is int"):
        io.canonical_json({1: "a"})


def test_written_json_is_readable_and_sorted(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "x.json"
    io.write_json(path, {"b": (1, 2), "a": "é"})
    assert path.read_text("utf-8") == '{\n  "a": "é",\n  "b": [\n    1,\n    2\n  ]\n}\n'
    assert io.read_json(path) == {"a": "é", "b": [1, 2]}
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
    assert io.sha256_file(path) == io.sha256_text(path.read_text("utf-8"))


def test_unreadable_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": ')
    with raises_code(StoreError, "not-json", "x.json"):
        io.read_json(tmp_path / "x.json")
    with raises_code(StoreError, "file-missing", "y.json"):
        io.read_json(tmp_path / "y.json")


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
    io.write_text(path, "old")

    def refuse(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with raises_code(StoreError, "cannot-write", "x.txt", advice):
            io.write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, bytes(content[:3])))
    io.write_bytes(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def fill(content: str, error: Exception | None = None) -> None:
        with io.atomic_directory(target) as directory:
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
        monkeypatch.setattr(io, "_exchange", lambda one, other: False)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    io.replace_directory(tmp_path / "new", tmp_path / "old")
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == ["old", "old/new.txt"]


def test_leftovers_of_dead_processes_are_swept_and_others_are_not(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from regft_core import io\n"
        "path = io._temporary(Path(sys.argv[1]) / 'out'); path.mkdir(); (path / 'f').write_text('x')"
    )
    root = Path(__file__).resolve().parents[1]
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], check=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    (dead,) = tmp_path.iterdir()
    alive = io._temporary(tmp_path / "out")
    alive.mkdir()
    reused = tmp_path / f".out.tmp-{io._HOST}.{os.getpid()}.1.00000000"  # our id, but another start time
    reused.mkdir()
    remote = tmp_path / ".out.tmp-elsewhere.1.1.00000000"
    remote.mkdir()
    old_remote = tmp_path / ".out.tmp-elsewhere.1.1.00000001"
    old_remote.mkdir()
    os.utime(old_remote, (0, 0))
    users = tmp_path / ".out.tmp-mine"
    users.mkdir()
    other = tmp_path / dead.name.replace("out", "other")
    other.mkdir()
    expected = {dead, old_remote} | ({reused} if Path("/proc/self/stat").exists() else set())
    assert set(io.sweep_stale(tmp_path, "out")) == expected
    assert set(tmp_path.iterdir()) == {alive, remote, users, other, reused} - expected
    assert io.sweep_stale(tmp_path / "absent") == []


def test_a_write_sweeps_what_a_killed_write_left(tmp_path: Path) -> None:
    left = tmp_path / f".x.json.tmp-{io._HOST}.{2**22 + 1}.1.00000000"  # above the largest process id
    left.write_text("half")
    io.write_json(tmp_path / "x.json", {})
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_names_of_any_length_that_the_system_takes_can_be_written(tmp_path: Path) -> None:
    name = "é" * 125 + ".json"  # 255 bytes: nothing is left for the ending of a temporary name
    for _ in range(2):
        io.write_json(tmp_path / name, {})
        with io.atomic_directory(tmp_path / "d" / name) as directory:
            (directory / "file").write_text("x")
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [name]
    assert [p.name for p in (tmp_path / "d").iterdir()] == [name]
    left = tmp_path / io._temporary(tmp_path / name).name.replace(f".{os.getpid()}.", f".{2**22 + 1}.")
    left.write_text("half")
    io.write_json(tmp_path / name, {})
    assert not left.exists()


def test_longer_names_are_explained(tmp_path: Path) -> None:
    name = "m" * 300
    said = ("cannot-write", "allow 255")
    with raises_code(StoreError, *said):
        io.write_json(tmp_path / f"method-{name}.json", {})
    with raises_code(StoreError, *said):
        io.write_json(tmp_path / name / "x.json", {})
    with raises_code(StoreError, *said), io.atomic_directory(tmp_path / name / f"{name}-128"):
        pass
    assert list(tmp_path.iterdir()) == []

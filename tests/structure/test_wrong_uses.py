"""Each wrong use of the command gives one error, with its code and what to do next, and changes no file."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regft_core.catalogue import use_project
from regft_core.fit.new_project import make_project
from stages import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new project with something that took long to make; the command is called in it, in this process."""
    root = tmp_path / "project"
    make_project(root, None)
    (root / "work").mkdir()
    (root / "work" / "results").write_text("hours of training")
    (root / "out.csv").write_text("earlier predictions")
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "argv", ["regft"])
    yield root
    use_project(ROOT)


def no_params(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "params.yaml").unlink()


def no_git(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root / "work"))


def no_dvc(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(root / ".dvc")


def as_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("wrong", "command", "exit_code", "code", "hint"),
    [
        (no_git, ("run",), 2, "git-missing", "install git"),
        (no_dvc, ("run",), 2, "no-project", "dvc init"),
        (no_params, ("check",), 2, "no-project", "regft init"),
        (no_params, ("controls",), 2, "no-project", "regft init"),
        (as_it_is, ("init", "."), 2, "folder-in-use", "folder"),
        (as_it_is, ("methods", "lorra"), 2, "unknown-method", "'lora'"),
        (as_it_is, ("new", "method", "@x"), 2, "name-not-possible", "lower case"),
    ],
)
def test_it_gives_one_error_and_loses_nothing(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: Callable[[Path, pytest.MonkeyPatch], None],
    command: tuple[str, ...],
    exit_code: int,
    code: str,
    hint: str,
) -> None:
    wrong(project, monkeypatch)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as stopped:
        cli.main(command)
    said = capsys.readouterr()
    assert stopped.value.code == exit_code, said.err
    assert re.findall(r"\[([a-z0-9-]+)\]$", said.err, re.MULTILINE) == [code]
    assert hint in said.err.split("->", 1)[1]
    assert "Traceback" not in said.err
    assert {path: path.read_bytes() for path in before if path.is_file()} == before

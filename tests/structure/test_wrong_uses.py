"""Each wrong use of the command gives its error, with code and what to do next, and changes no file."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def no_project(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "new").mkdir()
    monkeypatch.chdir(root / "new")


def as_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("wrong", "command", "codes", "hint"),
    [
        (no_git, "run", ["git-missing"], "install git"),
        (no_dvc, "run", ["no-project"], "dvc init"),
        (no_project, "run", ["no-project"] * 3, "regft init"),  # params.yaml, dvc.yaml and DVC's folder
        (no_params, "check", ["no-project"], "regft init"),
        (no_params, "controls", ["no-project"], "regft init"),
        (as_it_is, "init .", ["folder-in-use"], "folder"),
        (as_it_is, "methods lorra", ["unknown-method"], "'lora'"),
        (as_it_is, "new method @x", ["name-not-possible"], "lower case"),
        (as_it_is, "exprot", ["unknown-command"], "'export'"),
        (as_it_is, "search --only vanilla/exampel", ["not-listed"], "'example'"),
        (as_it_is, "finetune --only vanila/example", ["not-listed"], "'vanilla'"),
        (as_it_is, "evaluate --only vanila", ["not-listed"], "'vanilla'"),
        (as_it_is, "fit out.csv --text review", ["column-unnamed"], "'earlier predictions'"),
    ],
)
def test_it_gives_its_error_and_changes_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, wrong: Any, command: str, codes: list[str], hint: str
) -> None:
    wrong(project, monkeypatch)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as stopped:
        sys.exit(cli.main(command.split()))
    said = capsys.readouterr()
    assert stopped.value.code == 2, said.err
    assert re.findall(r"\[([a-z0-9-]+)\]$", said.err, re.MULTILINE) == codes
    assert hint in said.err.split("->", 1)[1]
    assert "Traceback" not in said.err
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before

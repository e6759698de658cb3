"""Each wrong use of the command gives its error, with code and what to do next, and changes no file."""

from __future__ import annotations

import re
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


def leave_out(what: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command find no git, no project around it, or not a file or folder of the project."""
    if what == "git":
        monkeypatch.setenv("PATH", str(root / "work"))
    elif what == "project":
        (root / "new").mkdir()
        monkeypatch.chdir(root / "new")
    elif what:
        (root / what).rename(root.parent / "elsewhere")


@pytest.mark.parametrize(
    ("lacking", "command", "codes", "hint"),
    [
        ("git", "run", ["git-missing"], "install git"),
        (".dvc", "run", ["no-project"], "dvc init"),
        ("project", "run", ["no-project"] * 3, "regft init"),  # params.yaml, dvc.yaml and DVC's folder
        ("params.yaml", "check", ["no-project"], "regft init"),
        ("params.yaml", "controls", ["no-project"], "regft init"),
        ("", "init .", ["folder-in-use"], "folder"),
        ("", "methods lorra", ["unknown-method"], "'lora'"),
        ("", "new method @x", ["name-not-possible"], "lower case"),
        ("", "new method größe", ["name-not-possible"], "lower case"),
        ("", "exprot", ["unknown-command"], "'export'"),
        ("", "search --only vanilla/film_polarty", ["not-listed"], "'film_polarity'"),
        ("", "finetune --only vanila/film_polarity", ["not-listed"], "'vanilla'"),
        ("", "evaluate --only vanila", ["not-listed"], "'vanilla'"),
        ("", "fit out.csv --text review", ["column-unnamed"], "'earlier predictions'"),
    ],
)
def test_it_gives_its_error_and_changes_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, lacking: str, command: str, codes: list[str], hint: str
) -> None:
    leave_out(lacking, project, monkeypatch)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as stopped:
        sys.exit(cli.main(command.split()))
    said = capsys.readouterr()
    assert stopped.value.code == 2, said.err
    assert re.findall(r"\[([a-z0-9-]+)\]$", said.err, re.MULTILINE) == codes
    assert hint in said.err.split("->", 1)[1]
    assert "Traceback" not in said.err
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before

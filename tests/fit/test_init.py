"""`regft init`: a project of few files that works at once, and nothing lost of what was there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from regft_core import shipped
from regft_core.fit.new_project import make_project
from regft_core.runs.opened_project import open_project
from tests.promises.kit import regft
from tests.small_project import REPOSITORY, review, write_csv
from tests.tiny import tiny_model_dir

FILES = [
    ".dvc/.gitignore",
    ".dvc/config",
    ".dvcignore",
    ".gitignore",
    "README.md",
    "dvc.yaml",
    "params.yaml",
    "pipelines/tasks/example.yaml",
]


def files(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and ".git/" not in str(path)
    )


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    table = [("review", "verdict"), *((f"{review(n)} {n}", ["bad", "good"][n % 2]) for n in range(30))]
    return write_csv(tmp_path / "Own Reviews.csv", table)


def test_an_example_is_few_files_that_are_right(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    make_project(folder, None)
    assert files(folder) == FILES
    project = open_project(folder)
    assert list(project.params.grid.tasks) == ["example"]
    assert "pipelines/methods" in (folder / "README.md").read_text()


def test_one_that_was_killed_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("regft_core.fit.new_project.write_text", die)
        with pytest.raises(KeyboardInterrupt):
            make_project(tmp_path / "new", None)
    make_project(tmp_path / "new", None)
    assert set(FILES) <= set(files(tmp_path / "new"))


def test_without_git_it_says_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [said] = make_project(tmp_path / "new", None)
    assert "no_scm" in said
    assert "dvc metrics diff" in said
    assert "no_scm = true" in (tmp_path / "new" / ".dvc" / "config").read_text()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_command_makes_a_project_whose_results_git_ignores(tmp_path: Path, rows: Path) -> None:
    encoder = tiny_model_dir(tmp_path / "scratch", "bert")
    columns = ["--text", "review", "--label", "verdict", "--model", str(encoder)]
    done = regft(tmp_path, "init", "new", "--task", str(rows), *columns)
    assert done.returncode == 0, done.stderr
    assert "cd new && regft run" in done.stdout
    grid = open_project(tmp_path / "new").params.grid
    assert (list(grid.tasks), list(grid.seeds), list(grid.sizes)) == (["own-reviews"], [*range(10)], ["full"])
    results = [".regft/runs", "work/plan", "reports/report.html", "mlflow.db"]
    command = ["git", "check-ignore", *results]
    ignored = subprocess.run(command, cwd=tmp_path / "new", check=True, capture_output=True, text=True).stdout
    assert ignored.split() == results


def test_what_is_shipped_is_what_the_repository_has() -> None:
    for name, path in shipped.PROJECT.items():
        assert path.read_text() == (REPOSITORY / name).read_text()

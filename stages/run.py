"""Train what is out of date; show the leaderboard.

Runs `dvc repro`: results that are up to date are reused. An interrupted run
continues where it stopped. Exits with 1 when runs failed. With --config one run
of MLflow is repeated in a folder of its own.

examples
  regft run
  regft run --config mlartifacts/RUN/artifacts/config.yaml

next: open reports/report.html; regft export --method METHOD --refit
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from regft_core.errors import ConfigError, Problem
from regft_core.grid.repro import repro
from regft_core.runs.project import open_project
from regft_core.runs.work import Work
from regft_core.settings.files import LEADERBOARD, WIDTHS, no_project
from regft_core.settings.grid import cells
from regft_core.settings.run_config import lay_out_config

from .common import argument, run

#: The variable with a file that stage report makes when it has printed the leaderboard.
PRINTED = "REGFT_PRINTED"


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Run what is out of date, or repeat one run of MLflow."""
    require_project(root)
    if arguments.config is None:
        run_and_show(root)
        return
    folder = lay_out_config(root, Path(arguments.config))
    project = open_project(folder)
    print(f"{arguments.config} runs in {folder.relative_to(root)}", flush=True)
    run_and_show(folder)
    for cell in cells(project):
        for record in Work(folder).finetune(cell).runs:
            print(f"{cell.directory}, seed {record.seed}: run {record.key}")


def run_and_show(root: Path) -> None:
    """`dvc repro` with the leaderboard at the end, also when there was nothing to do; exits when cells failed."""
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed"
        done = repro(root, {PRINTED: str(printed)})
        if done:
            sys.exit(done)
        if not printed.is_file() and (root / LEADERBOARD).is_file():
            columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTHS[-1]
            texts = (root / LEADERBOARD).read_text(encoding="utf-8").split("\f")
            fitting = [text for text, width in zip(texts, WIDTHS) if width <= columns]
            print((fitting or texts)[-1 if fitting else 0], end="")
            print("nothing was out of date; report: reports/report.html")


def require_project(root: Path) -> None:
    """Raise ConfigError for what `dvc repro` needs and the folder lacks."""
    problems = []
    for name, what in (("params.yaml", "a project"), ("dvc.yaml", "a pipeline"), (".dvc", "a DVC project")):
        if not (root / name).exists():
            problem = no_project(root, name, what)
            if name == ".dvc":
                problem = replace(problem, hint="run `dvc init` here (without git: `dvc init --no-scm`)")
            problems.append(problem)
    if not problems and not no_scm(root) and shutil.which("git") is None:
        hint = "install git, or write 'no_scm = true' below [core] in .dvc/config"
        problems.append(Problem("git-missing", ".dvc/config", 0, "", "wants git, which is not on the PATH", hint))
    if problems:
        raise ConfigError(problems)


def no_scm(root: Path) -> bool:
    """Whether DVC works without git in a project."""
    config = root / ".dvc" / "config"
    return config.is_file() and "no_scm = true" in config.read_text(encoding="utf-8").lower()


if __name__ == "__main__":
    run(main, argument("--config", "config.yaml of a run in MLflow: run it again instead of the project"))

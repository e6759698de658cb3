"""The promises: what users rely on, by the command line and ``regft_core.api``, whatever is behind them.

Most stand here, with their numbers in the names of files. Others have a folder: 15 (presets) ``tests/presets``; 22 (odd
files) ``test_odd_files.py``; 28 (formulas and released code) ``tests/methods`` and ``tests/official``; 31 (simulations)
``tests/statistics``.

The fixtures here are a project with its own copy of the code under the real DVC, reproduced once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.promises.kit import edit
from tests.small_project import REPOSITORY, build, git

#: Two phases before fine-tuning, and two regularisers.
CHAIN = """\
# Two phases, then noise on hidden states and on weights.
description: A chain of phases
phases:
  one:
    training: {max_steps: 1}
  two:
    training: {max_steps: 2}
  finetune:
    regularisers:
      hype: {scale: 1.0e-5}
      pats: {}
"""


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(warm.folder()), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "DVC_NO_ANALYTICS": "1",
        "OMP_NUM_THREADS": "1",
        # Byte code appears in the watched folders, as on a user's machine.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPATH": "",
    }


def attempt(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a dvc command in the project."""
    return warm.run(root, "-m", "dvc", *arguments, environment=environment())


def dvc(root: Path, *arguments: str) -> str:
    """Run a dvc command that must succeed; returns what it printed."""
    done = attempt(root, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def ran(output: str) -> list[str]:
    """Names of the stages that ``dvc repro`` executed, without the file they are in."""
    return [name.rsplit(":", 1)[-1] for name in re.findall(r"Running stage '([^']+)'", output)]


def stored(root: Path) -> int:
    """Complete runs in the project's store."""
    return len(list((root / ".regft" / "runs").glob("*/*/result.json")))


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pipeline") / "project"
    build(root, methods=["vanilla", "chain"], grid={"seeds": [0]}, trackers=["mlflow"])
    for name in ("regft_core", "stages"):  # the links to what is shipped lead to the project's own files then
        shutil.copytree(REPOSITORY / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".gitignore", ".dvcignore"):
        shutil.copy(REPOSITORY / name, root / name)
    (root / "pipelines" / "methods" / "chain.yaml").write_text(CHAIN)
    edit(root / "params.yaml", "execution:", "# what to run\nexecution:")
    git(root, "init", "-q")
    dvc(root, "init", "-q")
    output = dvc(root, "repro")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a project")
    (root.parent / "output").write_text(output)
    return root


@pytest.fixture
def project(reproduced: Path, empty_database: Path, tmp_path: Path) -> Path:
    """A copy of the project in which everything is done, with an empty database: MLflow's own names its folder."""
    ignore = shutil.ignore_patterns("mlflow.db*")
    copy = Path(shutil.copytree(reproduced, tmp_path / "project", symlinks=True, ignore=ignore))
    shutil.copyfile(empty_database, copy / "mlflow.db")
    return copy

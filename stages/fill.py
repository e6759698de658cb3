"""Run everything that is stale, across all cells, through one pool of workers (not a DVC stage).

python -m stages.fill && dvc repro

Results go to the run store under the keys that the stages ask for; `dvc repro` then finds every run there and only
commits. Plain `dvc repro` does the same work cell by cell and comes to the same results.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Bring facts and data up to date, then train and evaluate what is not in the run store."""
    from regft_core.phases.facts import write_facts
    from regft_core.phases.fill import fill
    from regft_core.phases.locked import Locked
    from regft_core.phases.project import open_project

    project = open_project(root)
    write_facts(project)
    locked = Locked(root)
    if not all(locked.data(task) for task in project.params.grid.tasks):
        command = [sys.executable, "-m", "dvc", "repro", "dataset", "subsample", "lengths"]
        # The stages' commands name `python`: this one, also where the environment is not activated.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        done = subprocess.run(command, cwd=root, env={**os.environ, "PATH": path})
        if done.returncode:
            sys.exit(done.returncode)
    count = fill(root)
    print(f"{count} pieces of work done; `dvc repro` commits them" if count else "everything is in the run store")


if __name__ == "__main__":
    run(main)

"""Stage dataset@<task>: read, check and normalise a task and its OOD sets."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.data.prepare import prepare_dataset
from regft_core.phases.context import open_project
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/datasets/<task>."""
    project = open_project(root)
    prepare_dataset(root, arguments.task, project.tasks, root / "work" / "datasets" / arguments.task)


if __name__ == "__main__":
    run(main, "task")

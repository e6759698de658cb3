"""Stage dataset@<task>: read, check and normalise a task and its OOD sets."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.stages import run_dataset
from stages.common import TASK, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/datasets/TASK: train, dev and every out-of-distribution set as JSON lines, with task.json."""
    run_dataset(root, arguments.task)


if __name__ == "__main__":
    run(main, TASK)

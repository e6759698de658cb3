"""Stage subsample@<task>: the training rows of every size and seed, the same for all methods."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.stages import run_subsample
from stages.common import TASK, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/subsamples/TASK: for every size and seed of the grid the rows to train on."""
    run_subsample(root, arguments.task)


if __name__ == "__main__":
    run(main, TASK)

"""Stage subsample@<task>-<size>: the training rows of every seed, the same for all methods."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.data.subsample import write_subsamples
from regft_core.phases.context import open_project
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/subsamples/<task>-<size>."""
    params = open_project(root).params
    size = arguments.size if arguments.size == "full" else int(arguments.size)
    write_subsamples(root, arguments.task, size, params.grid.seeds, params.subsample.stratified)


if __name__ == "__main__":
    run(main, "task", "size")

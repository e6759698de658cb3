"""Stage 1 of the pipeline."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import command, start


@command()
def subsample(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 1: prepare the rows, plan every run.

    Writes work/datasets, work/subsamples, work/lengths and work/plan. `dvc repro`
    runs it first, each time; up-to-date files are left alone.

    examples
      regft subsample

    next: regft plan
    """
    from regft_core.grid.data import prepare
    from regft_core.grid.keys import forget_failures, stale_cells, write_plan
    from regft_core.runs.project import open_project

    project = open_project(root)
    prepare(project)
    write_plan(project)
    forget_failures(root)
    if stale := stale_cells(root):
        from regft_core.grid.time import still_to_train  # only here: most calls find nothing to do

        if (time := still_to_train(project, stale)) is not None:
            print(time.line())


if __name__ == "__main__":
    start("subsample")

"""The stages of the pipeline that prepare rows and train: DVC runs them one after the other."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import GRID, command, compute_stage


@command()
def subsample(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 1: prepare the rows, plan every run.

    Writes work/datasets, work/subsamples, work/lengths and work/plan. `dvc repro`
    runs it first, each time; up-to-date files are left alone.

    examples
      regft subsample

    next: regft plan
    """
    from regft_core.grid.cell_keys import forget_failures, stale_cells, write_plan
    from regft_core.grid.data import prepare
    from regft_core.runs.opened_project import open_project

    project = open_project(root)
    prepare(project)
    write_plan(project)
    forget_failures(root)
    if stale := stale_cells(root):
        from regft_core.grid.time import still_to_train  # only here: most calls find nothing to do

        if (time := still_to_train(project, stale)) is not None:
            print(time.line())


@command(*GRID)
def search(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 2: trials of tuned methods, phases before fine-tuning.

    Writes work/search for every cell that has such phases. `dvc repro` runs it.

    examples
      regft search --only lp_ft/film_polarity

    next: regft finetune
    """
    compute_stage("search", root, arguments)


@command(*GRID)
def finetune(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 3: train the last phase of every run, evaluate each.

    Writes work/finetune; the weights are in the run store. A killed run continues
    when repeated. `dvc repro` runs it.

    examples
      regft finetune --only lp_ft/film_polarity

    next: regft evaluate
    """
    compute_stage("finetune", root, arguments)


@command(*GRID)
def evaluate(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 4: scores on validation and out-of-distribution sets.

    Writes work/evaluate: scores, the prediction for each row, and the results of
    further analyses. `dvc repro` runs it.

    examples
      regft evaluate --only lp_ft/film_polarity

    next: regft report
    """
    compute_stage("evaluate", root, arguments)

"""Stage 3 of the pipeline."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import GRID, command, compute_stage, start


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


if __name__ == "__main__":
    start("finetune")

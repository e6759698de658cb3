"""Stage 4 of the pipeline."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import GRID, command, compute_stage, start


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


if __name__ == "__main__":
    start("evaluate")

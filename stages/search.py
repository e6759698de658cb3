"""Stage 2 of the pipeline."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import GRID, command, compute_stage, start


@command(*GRID)
def search(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 2: trials of tuned methods, phases before fine-tuning.

    Writes work/search for every cell that has such phases. `dvc repro` runs it.

    examples
      regft search --only lp_ft/film_polarity

    next: regft finetune
    """
    compute_stage("search", root, arguments)


if __name__ == "__main__":
    start("search")

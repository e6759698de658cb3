"""Stage 2: trials of tuned methods, phases before fine-tuning.

Writes work/search for every cell that has such phases. `dvc repro` runs it.

examples
  regft search --only lp_ft/film_polarity

next: regft finetune
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import GRID, compute_stage, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/search for every cell that has such phases."""
    compute_stage(root, "search", arguments)


if __name__ == "__main__":
    run(main, *GRID)

"""Stage search: the trials of tuned methods, and the phases before fine-tuning.

regft search --only lp_ft/film_polarity
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

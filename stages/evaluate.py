"""Stage evaluate: every run on dev and on every out-of-distribution set.

regft evaluate --only lp_ft/film_polarity
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import GRID, compute_stage, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/evaluate: scores, predictions per example, and what evaluations found."""
    compute_stage(root, "evaluate", arguments)


if __name__ == "__main__":
    run(main, *GRID)

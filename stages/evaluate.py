"""Stage 4: scores on validation and out-of-distribution sets.

Writes work/evaluate: scores, the prediction for each row, and the results of
further analyses. `dvc repro` runs it.

examples
  regft evaluate --only lp_ft/film_polarity

next: regft report
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import GRID, compute_stage, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/evaluate: scores, predictions per example, and results of analyses."""
    compute_stage(root, "evaluate", arguments)


if __name__ == "__main__":
    run(main, *GRID)

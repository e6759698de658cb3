"""Stage 3: train the last phase of every run, evaluate each.

Writes work/finetune; the weights are in the run store. A killed run continues
when repeated. `dvc repro` runs it.

examples
  regft finetune --only lp_ft/film_polarity

next: regft evaluate
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import GRID, compute_stage, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/finetune. The weights are in the run store; killed runs continue."""
    compute_stage(root, "finetune", arguments)


if __name__ == "__main__":
    run(main, *GRID)

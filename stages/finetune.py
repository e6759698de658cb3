"""Stage finetune: the last phase of every run; each is evaluated right after it was trained.

regft finetune --only lp_ft/film_polarity
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

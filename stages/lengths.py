"""Stage lengths@<task>: how many tokens the texts have, and how many rows max_length cuts."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.stages import run_lengths
from stages.common import TASK, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/lengths/TASK.json with the encoder's tokenizer; warns where more than a tenth of a set is cut."""
    run_lengths(root, arguments.task)


if __name__ == "__main__":
    run(main, TASK)

"""Stage lengths@<task>: how many tokens the texts have, and how many rows max_length cuts."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.stages import run_lengths
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Measure every set of a task with the encoder's tokenizer; write work/lengths/<task>.json; warn of cut rows."""
    run_lengths(root, arguments.task)


if __name__ == "__main__":
    run(main, "task")

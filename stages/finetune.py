"""Stage finetune@<method>-<task>: every size and seed."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.stages import run_finetune
from stages.common import METHOD, TASK, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/finetune/METHOD/TASK; finished runs come from the run store, killed ones continue."""
    run_finetune(root, arguments.method, arguments.task)


if __name__ == "__main__":
    run(main, METHOD, TASK)

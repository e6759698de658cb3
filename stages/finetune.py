"""Stage finetune@<method>-<task>: every size and seed."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.stages import run_finetune
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Fine-tune every size and seed of a method on a task; finished runs are taken from the run store."""
    run_finetune(root, arguments.method, arguments.task)


if __name__ == "__main__":
    run(main, "method", "task")

"""Stage evaluate@<method>-<task>: every size and seed on dev and on every OOD set."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.stages import run_evaluate
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Evaluate every size and seed of a method on a task; predictions are kept per example."""
    run_evaluate(root, arguments.method, arguments.task)


if __name__ == "__main__":
    run(main, "method", "task")

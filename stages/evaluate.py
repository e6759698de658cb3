"""Stage evaluate@<method>-<task>-<size>: every seed on dev and on every OOD set."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.cells import describe, run_cell
from regft_core.phases.evaluate import evaluate
from regft_core.phases.outputs import write_evaluation
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Evaluate every seed of one cell; predictions are kept per example."""
    context, records = run_cell(root, evaluate, arguments.method, arguments.task, arguments.size)
    write_evaluation(context, records)
    print("\n".join(describe(record, "evaluate") for record in records))


if __name__ == "__main__":
    run(main, "method", "task", "size")

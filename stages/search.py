"""Stage search@<method>-<task>-<size>: all seeds of a cell."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.cells import describe, run_cell
from regft_core.phases.outputs import write_training
from regft_core.phases.search import search
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Search every seed of one cell; finished seeds are taken from the run store."""
    context, records = run_cell(root, search, arguments.method, arguments.task, arguments.size)
    write_training(context, "search", records)
    print("\n".join(describe(record, "search") for record in records))


if __name__ == "__main__":
    run(main, "method", "task", "size")

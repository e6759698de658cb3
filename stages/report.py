"""Stage report: the grid's results as HTML, JSON, plots and, on the screen, a table."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.config.grid import cells
from regft_core.phases.context import open_project
from regft_core.reporting.report import write_report
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write reports/ and mirror the grid into MLflow."""
    project = open_project(root)
    write_report(project)
    # After the report, so that its figures are in the mirror too.
    from regft_core.tracking.sync import sync

    print(sync(root, cells(project), project.params.grid.seeds))


if __name__ == "__main__":
    run(main)

"""Stage 5 of the pipeline, and finished runs in MLflow and other trackers."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path

from regft_core import output
from regft_core.disk.canonical import json_text
from regft_core.disk.files import write_text
from regft_core.errors import RunFailed
from regft_core.grid.cell_keys import read_failures
from regft_core.names import plural
from regft_core.report import project_inputs, write_report
from regft_core.report.leaderboard import show
from regft_core.settings.project import cells
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import LEADERBOARD

from .common import COLUMNS, argument, command, flag, whole_number
from .run import PRINTED

#: Of a log that is no terminal.
LOG_COLUMNS = 180


@command(flag("--json", "print reports/results.json instead of the table, for scripts"))
def report(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 5: the report: page, tables, JSON, plots, and MLflow.

    The last stage of `dvc repro`. Reads the evaluations of the grid, writes
    reports/, and prints the leaderboard. Exits with 1 when runs failed, and lists
    them.

    examples
      regft report
      regft report --json

    next: open reports/report.html
    """
    from rich.console import Console

    project, failures = open_project(root), read_failures(root)
    planned = [cell for cell in cells(project) if cell.directory not in failures]
    if not planned:
        raise _failed(failures)
    report = write_report(project_inputs(project, planned, failures))
    if arguments.json:
        print(json_text(report.results), end="")
    else:
        show(report, output.console(width=None if sys.stdout.isatty() else LOG_COLUMNS))
    show(report, Console(file=(text := io.StringIO()), width=COLUMNS))
    write_text(root / LEADERBOARD, text.getvalue())  # what `regft run` shows when nothing is stale
    if PRINTED in os.environ:
        Path(os.environ[PRINTED]).touch()
    # After the report, so that its figures are there too.
    from regft_core.tracking import sync

    said = sys.stderr if arguments.json else sys.stdout
    print(sync(project), file=said)
    print("report: reports/report.html    runs: regft ui", file=said)
    if failures:
        raise _failed(failures)


def _failed(failures: dict[str, str]) -> RunFailed:
    """The error that lists every cell without a result."""
    lines = [f"  {cell}: {reason}" for cell, reason in failures.items()]
    text = f"{plural(len(failures), 'cell')} without a result:"
    return RunFailed("cells-failed", "\n".join([text, *lines, "  -> mend the cause and run `dvc repro` again"]))


@command()
def sync(root: Path, arguments: argparse.Namespace) -> None:
    """Log what was run to MLflow, or to the trackers of params.yaml.

    Logs the runs of work/ that mlflow.db lacks. Nothing is deleted or
    overwritten.

    examples
      regft sync

    next: regft ui
    """
    from regft_core.tracking import sync

    print(sync(open_project(root)))


@command(argument("--port", "1024 to 65535", type=whole_number(1024, 65_535), default=5000))
def ui(root: Path, arguments: argparse.Namespace) -> None:
    """Show finished runs in MLflow on this machine.

    Brings mlflow.db up to date, then serves http://127.0.0.1:PORT until it is
    interrupted.

    examples
      regft ui
      regft ui --port 5001

    next: open http://127.0.0.1:5000
    """
    from regft_core.tracking import MLFLOW, sync
    from regft_core.tracking.trackers.mlflow import opened
    from regft_core.tracking.ui import require_port, serve

    require_port(arguments.port)  # before the sync, which may take a while
    print(sync(open_project(root), MLFLOW), flush=True)
    with opened(root) as tracker:
        experiment = tracker.experiment
    serve(root, arguments.port, experiment)

"""Finished runs in MLflow and other trackers."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.tracking import MLFLOW, sync_project

from .common import argument, command


@command()
def sync(root: Path, arguments: argparse.Namespace) -> None:
    """Log what was run to MLflow, or to the trackers of params.yaml.

    Logs the runs of work/ that mlflow.db lacks. Nothing is deleted or
    overwritten.

    examples
      regft sync

    next: regft ui
    """
    print(sync_project(root))


def port_number(text: str) -> int:
    """Return a port that users may listen on."""
    if not text.isdecimal() or not 1024 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 1024 to 65535")
    return int(text)


@command(argument("--port", "1024 to 65535", type=port_number, default=5000))
def ui(root: Path, arguments: argparse.Namespace) -> None:
    """Show finished runs in MLflow on this machine.

    Brings mlflow.db up to date, then serves http://127.0.0.1:PORT until it is
    interrupted.

    examples
      regft ui
      regft ui --port 5001

    next: open http://127.0.0.1:5000
    """
    from regft_core.tracking.trackers.mlflow import opened
    from regft_core.tracking.ui import require_port, serve

    require_port(arguments.port)  # before the sync, which may take a while
    print(sync_project(root, MLFLOW), flush=True)
    with opened(root) as tracker:
        experiment = tracker.experiment
    serve(root, arguments.port, experiment)

"""Mirror the project into MLflow, and look at it.

regft ui       sync, then open MLflow on http://127.0.0.1:5000
regft sync     bring mlflow.db up to date with work/
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from regft_core import output
from regft_core.errors import RegftError


def sync_project(root: Path) -> str:
    """Sync the cells of the project's grid; returns one line for the screen."""
    from regft_core.runs.context import open_project
    from regft_core.settings.grid import cells
    from regft_core.tracking.sync import sync

    project = open_project(root)
    return str(sync(root, cells(project), project.params.grid.seeds))


def port_number(text: str) -> int:
    """A port that users may listen on."""
    port = int(text)
    if not 1024 <= port <= 65_535:
        raise ValueError(text)
    return port


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    output.guard()
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--root", type=Path, default=Path(), help="project root (default: here)")
    parser = argparse.ArgumentParser("regft", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("sync", parents=[shared], help="bring mlflow.db up to date with work/")
    ui = commands.add_parser("ui", parents=[shared], help="sync, then serve MLflow's page on this machine")
    ui.add_argument("--port", type=port_number, default=5000, help="1024 to 65535 (default: 5000)")
    given = parser.parse_args(arguments)
    try:
        if given.command == "ui":
            from regft_core.tracking.ui import require_port, serve

            require_port(given.port)  # before the sync, which may take a while
            print(sync_project(given.root), flush=True)
            serve(given.root, given.port)
        else:
            print(sync_project(given.root))
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

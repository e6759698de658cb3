"""Log what was run to MLflow, or to the trackers of params.yaml.

Logs the runs of work/ that mlflow.db lacks. Nothing is deleted or
overwritten.

examples
  regft sync

next: regft ui
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.tracking.sync import sync_project

from .common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Log the runs of work/ that the trackers lack."""
    print(sync_project(root))


if __name__ == "__main__":
    run(main)

"""Stage code: fingerprints of the code that each other stage runs (see runs/fingerprint.py)."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.context import open_project
from regft_core.runs.fingerprint import write_fingerprints
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/code/<name>.json."""
    from regft_core.methods.registry import discover

    registry = discover()
    methods = {
        name: [registry[regulariser].__module__ for regulariser, _ in method.regularisers]
        for name, method in open_project(root).methods.items()
    }
    write_fingerprints(root, methods)


if __name__ == "__main__":
    run(main)

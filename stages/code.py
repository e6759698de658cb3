"""Stage code: fingerprints of the code that each other stage runs (see runs/fingerprint.py)."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.catalogue import OPTIMISERS
from regft_core.phases.context import open_project
from regft_core.runs.fingerprint import write_fingerprints
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/code/<name>.json."""
    from regft_core.methods import compose
    from regft_core.methods.registry import discover

    registry = discover()
    project = open_project(root)
    methods = {}
    for name, method in project.methods.items():
        stack = compose.entries(registry, method.regularisers)
        training, _ = compose.resolve_training(stack, project.params.training, method.config.training)
        # No import names the optimiser's file either: the protocol does.
        own = [cls.__module__ for cls, _ in stack]
        methods[name] = [*own, f"{OPTIMISERS.package}.{training.optimizer}"]
    write_fingerprints(root, methods)


if __name__ == "__main__":
    run(main)

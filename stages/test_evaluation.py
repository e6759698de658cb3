"""Test one evaluation, your own or a shipped one.

Looks at runs of a tiny encoder on every kind of task that the evaluation fits
and prints which promises it keeps. NAME is that of the file
evaluations/NAME.py. Its options are those of `evaluations` in params.yaml, or
their defaults. Exits with 1 when a promise is broken; writes nothing.

examples
  regft test-evaluation calibration

next: list it under `evaluations` in params.yaml, then `regft run`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import argument, print_promises, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print each promise with its result."""
    from regft_core.contract.evaluation import check_evaluation

    print_promises(check_evaluation(root, arguments.name))


if __name__ == "__main__":
    run(main, argument("name", "name of an evaluation"))

"""Test one metric, your own or a shipped one.

Scores generated labels of every kind of task that the metric fits and prints
which promises it keeps. NAME is that of the file metrics/NAME.py. Exits with 1
when a promise is broken; writes nothing.

examples
  regft test-metric accuracy

next: list the metric in a task's `metrics`, then `regft check`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import argument, print_promises, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print each promise with its result."""
    from regft_core.contract.metric import check_metric

    print_promises(check_metric(root, arguments.name))


if __name__ == "__main__":
    run(main, argument("name", "name of a metric"))

"""Test one regulariser, your own or a shipped one.

Trains it for a few steps on generated rows with a tiny encoder, on every kind
of task that it fits, and prints which promises it keeps. NAME is that of the
class (`name = "..."`) in methods/NAME.py. Exits with 1 when a promise is
broken; writes nothing.

examples
  regft test-method smooth_logits

next: list the method in params.yaml, then `regft check`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import argument, print_promises, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print each promise with its result."""
    from regft_core.contract.check import check_method

    print_promises(check_method(root, arguments.name))


if __name__ == "__main__":
    run(main, argument("name", "name of a regulariser"))

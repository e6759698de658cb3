"""Test one regulariser, your own or a shipped one.

Trains it for a few steps on generated rows with a tiny encoder, on every kind of
task that it fits, and prints which promises it keeps. NAME is that of the class (`name = "..."`) in
methods/NAME.py. Exits with 1 when a promise is broken; writes nothing.

examples
  regft test-method smooth_logits

next: list the method in params.yaml, then `regft check`
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .common import argument, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print each promise with its result."""
    from regft_core.contract.check import check_method

    broken = 0
    for promise in check_method(root, arguments.name):
        mark = {True: "kept", False: "BROKEN", None: "not said"}[promise.kept]
        print(f"{mark:9} {promise.says}" + (f": {promise.found}" if promise.found else ""), flush=True)
        broken += promise.kept is False
    if broken:
        sys.exit(1)


if __name__ == "__main__":
    run(main, argument("name", "name of a regulariser"))

"""Write the files of a method of your own.

Makes methods/NAME.py, a regulariser that works as it is written; the method
pipelines/methods/NAME.yaml, which uses it; and tests/test_NAME.py, which tries
its contract by pytest. Nothing that is there is overwritten.

examples
  regft new method smooth_logits

next: regft test-method NAME
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.fit.new_method import new_method

from .common import argument, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write the files, and say what to do with them."""
    for path in new_method(root, arguments.name):
        print(f"wrote {path}")
    print(f"Change it, try it by `regft test-method {arguments.name}`, and list it in params.yaml.")


if __name__ == "__main__":
    run(main, argument("what", "what to write: method", choices=("method",)), argument("name", "its name"))

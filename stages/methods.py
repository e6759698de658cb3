"""Print the catalogue of methods.

examples
  regft methods        all: phases, what they act on, cost, controls
  regft methods NAME   one, with all values and their sources

next: list it under methods in params.yaml, then `regft controls --write`
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pydantic_core import to_jsonable_python

from regft_core.errors import ConfigError, Problem
from regft_core.grid.method_table import as_text, catalogue
from regft_core.names import suggestion

from .common import argument, flag, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print all methods, or those named."""
    lines = catalogue(root)
    known = [line.name for line in lines]
    if unknown := [name for name in arguments.names if name not in known]:
        hint = suggestion(unknown[0], known, "there are")
        raise ConfigError([Problem("unknown-method", "", 0, "", f"unknown method '{unknown[0]}'", hint)])
    lines = [line for line in lines if not arguments.names or line.name in arguments.names]
    if arguments.json:
        print(json.dumps([to_jsonable_python(line) for line in lines], indent=1))
    else:
        print(as_text(lines, values=bool(arguments.names)))


if __name__ == "__main__":
    run(
        main,
        argument("names", "methods to show (default: all)", nargs="*"),
        flag("--json", "as a JSON list, for scripts"),
    )

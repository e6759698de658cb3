"""Print the versions of regft, Python and the main packages.

Include them in a report of an error.

examples
  regft version
  regft version --json

next: regft check
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .common import flag, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print one line for each, or one JSON object."""
    from regft_core.runs.project import versions

    found = versions()
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(f"{name} {version}" for name, version in found.items()))


if __name__ == "__main__":
    run(main, flag("--json", "one JSON object: name -> version"))

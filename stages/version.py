"""Say which version of regft, Python and the packages that compute are installed.

regft version
regft version --json
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

"""Print the catalogue of methods.

python -m stages.methods               every method: phases, what it touches, cost, controls
python -m stages.methods --markdown    the README's table
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from regft_core.errors import RegftError
from regft_core.names import suggestion
from regft_core.plan.method_table import as_markdown, as_text, catalogue


def main() -> int:
    """Print all methods, or those named; returns the exit code."""
    parser = argparse.ArgumentParser("python -m stages.methods", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", help="methods to show (default: all)")
    parser.add_argument("--markdown", action="store_true", help="as the README's table")
    given = parser.parse_args()
    try:
        lines = catalogue(Path())
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        return error.exit_code
    known = [line.name for line in lines]
    for name in given.names:
        if name not in known:
            print(f"regft: unknown method '{name}'\n    -> {suggestion(name, known, 'there are')}", file=sys.stderr)
            return 2
    lines = [line for line in lines if not given.names or line.name in given.names]
    print(as_markdown(lines) if given.markdown else as_text(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())

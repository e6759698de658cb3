"""Print the catalogue of methods.

regft methods               every method: phases, what it touches, cost, controls
regft methods NAME          one method, with all its values and where each is from
regft methods --markdown > docs/methods.md
regft methods --sources     where every value is from, as a page
regft methods --copy NAME   copy a shipped method into the project, where you edit it; --as NEW under another name
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pydantic_core import to_jsonable_python

from regft_core import output
from regft_core.errors import RegftError
from regft_core.grid.method_table import as_markdown, as_text, catalogue, sources_markdown
from regft_core.names import suggestion
from regft_core.settings.copy_method import copy_method

from .common import called_as


def main() -> int:
    """Print all methods, or those named; returns the exit code."""
    output.guard()
    parser = argparse.ArgumentParser(called_as("python -m stages.methods"), description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", help="methods to show (default: all)")
    parser.add_argument("--markdown", action="store_true", help="as docs/methods.md")
    parser.add_argument("--sources", action="store_true", help="where every value is from, as a page")
    parser.add_argument("--json", action="store_true", help="as a JSON list, for scripts")
    parser.add_argument("--copy", metavar="NAME", help="write pipelines/methods/NAME.yaml, in the shipped one's place")
    parser.add_argument("--as", dest="new", metavar="NEW", help="with --copy: write NEW.yaml, a method of its own")
    given = parser.parse_args()
    if given.copy is None and given.new is not None:
        parser.error("--as needs --copy NAME")
    try:
        if given.copy is not None:
            file = copy_method(Path(), given.copy, given.new)
            what = f"takes the place of the shipped {given.copy}" if given.new is None else "is a method of the project"
            print(f"{file} {what}; list {file.stem} under methods in params.yaml, then run `regft check`")
            return 0
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
    if given.json:
        print(json.dumps([to_jsonable_python(line) for line in lines], indent=1))
        return 0
    if given.sources:
        print(sources_markdown(lines))
    else:
        print(as_markdown(lines) if given.markdown else as_text(lines, values=bool(given.names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

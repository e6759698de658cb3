"""Compare the presets with what the papers state (published/protocols).

regft papers              every preset; or name tables and figures: regft papers hype_table1
regft papers --markdown   docs/papers.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from regft_core import output
from regft_core.errors import ConfigError, RegftError
from regft_core.grid.paper_table import as_markdown, line_of, problems_of, projects_of
from regft_core.names import plural, suggestion
from regft_core.settings.papers.protocols import PROTOCOLS, read_protocols

from .common import called_as


def compare(root: Path, names: Sequence[str]) -> str:
    """One line on the items that are named, or on all.

    Raises:
        ConfigError: every setting in which presets and protocols disagree.
    """
    papers = read_protocols(root)
    chosen = [(paper, item) for paper in papers for item in paper.items if not names or item.name in names]
    problems = [p for paper, item in chosen for p in problems_of(paper, item, projects_of(root, item))]
    if problems:
        raise ConfigError(problems)
    presets = {name for _, item in chosen for name in item.config.presets}
    return f"{plural(len(presets), 'preset')} of {plural(len(chosen), 'item')} as declared in {PROTOCOLS}"


def page(root: Path) -> str:
    """``docs/papers.md``."""
    papers = read_protocols(root)
    return as_markdown(
        [(paper, [line_of(root, paper, item, projects_of(root, item)) for item in paper.items]) for paper in papers]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or print the page; returns the exit code, 2 where something differs."""
    output.guard()
    parser = argparse.ArgumentParser(called_as("python -m stages.papers"), description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("items", nargs="*", help="tables and figures to compare (default: all)")
    parser.add_argument("--markdown", action="store_true", help="print docs/papers.md")
    parser.add_argument("--root", type=Path, default=Path(), help="project root (default: here)")
    given = parser.parse_args(arguments)
    try:
        known = [item.name for paper in read_protocols(given.root) for item in paper.items]
        for name in given.items:
            if name not in known:
                print(f"regft: unknown item '{name}'\n    -> {suggestion(name, known, 'there are')}", file=sys.stderr)
                return 2
        text = page(given.root) if given.markdown else compare(given.root, given.items)
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        return error.exit_code
    print(text.rstrip("\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

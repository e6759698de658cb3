"""List the tables and figures of the papers, and what makes each of them here.

regft papers                   every table and figure: what it shows, its presets, what differs from the paper
regft papers hype_table1       some of them; each setting with its source: published/protocols/hype_table1.yaml
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.settings.papers.protocols import PROTOCOLS, Item, read_protocols

from .common import argument, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print the items of every paper, or the one that is named. `regft preset NAME` runs a preset."""
    papers = read_protocols(root)
    known = [item.name for paper in papers for item in paper.items]
    if (name := arguments.item) is not None and name not in known:
        hint = suggestion(name, known, "there are")
        raise ConfigError([Problem("unknown-item", f"{PROTOCOLS}/{name}.yaml", 0, "", f"unknown item '{name}'", hint)])
    for paper in papers:
        items = [item for item in paper.items if name in (None, item.name)]
        if items:
            print("\n".join([paper.config.title, *(line for item in items for line in lines(item))]))


def lines(item: Item) -> Iterator[str]:
    """Yield what is said of one table or figure."""
    config = item.config
    yield f"  {item.name}: {config.item}, {config.shows}"
    makers = [*config.presets, *(f"evaluation {name}" for name in config.evaluations)]
    yield f"    {'made by ' + ', '.join(makers) if makers else 'blocked: ' + config.blocked}"
    yield from (f"    differs: {text}" for text in config.differs)


if __name__ == "__main__":
    run(main, argument("item", "a table or figure, such as hype_table1. Without it: all", nargs="?"))

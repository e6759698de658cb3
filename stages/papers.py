"""List the tables and figures of the papers and their outcomes.

Each item names its presets and what differs from the paper. With --report
every claim of the paper has its verdict, where a preset has run.

examples
  regft papers                  every table and figure
  regft papers tdt              those of one paper
  regft papers tdt --report

next: regft preset NAME --plan
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.settings.papers.protocols import PROTOCOLS, Item, read_protocols
from regft_core.settings.papers.published import published_names, read_published
from regft_core.settings.preset import FOLDER

from .common import argument, flag, run

#: Suffix of a preset's folder -> its scale.
SCALES = {"": "at the preset's scale", ".small": "at small scale, where no claim is judged"}


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print the items of every paper, or those that are named."""
    papers = read_protocols(root)
    known = [name for paper in papers for name in (paper.name, *(item.name for item in paper.items))]
    if (name := arguments.item) is not None and name not in known:
        hint = suggestion(name, known, "there are")
        problem = Problem("unknown-item", f"{PROTOCOLS}/{name}.yaml", 0, "", f"unknown paper or item '{name}'", hint)
        raise ConfigError([problem])
    for paper in papers:
        items = [item for item in paper.items if name in (None, paper.name, item.name)]
        for i, item in enumerate(items):
            said = [*lines(item), *(outcomes(root, item) if arguments.report else ())]
            print("\n".join([paper.config.title, *said] if i == 0 else said))


def lines(item: Item) -> Iterator[str]:
    """Yield what is said of one table or figure."""
    config = item.config
    yield f"  {item.name}: {config.item}, {config.shows}"
    makers = [*config.presets, *(f"evaluation {name}" for name in config.evaluations)]
    yield f"    {'made by ' + ', '.join(makers) if makers else 'blocked: ' + config.blocked}"
    yield from (f"    differs: {text}" for text in config.differs)


def outcomes(root: Path, item: Item) -> Iterator[str]:
    """Yield the claims of one table or figure: judged in the folders of its presets, or not run."""
    ran = False
    for preset in item.config.presets:
        reports = {suffix: root / FOLDER / f"{preset}{suffix}" / "reports" / "results.json" for suffix in SCALES}
        there = {suffix: path for suffix, path in reports.items() if path.is_file()}
        if not there:
            yield f"    not run: regft preset {preset}"
        for suffix, path in there.items():
            yield f"    ran: {FOLDER}/{preset}{suffix}, {SCALES[suffix]}"
            for table in read_json(path, dict).get("published", {}).values():
                ran = True
                yield from ([f"      {table['nothing']}"] if table["nothing"] else ())
                for claim in table["claims"]:
                    size = "all rows" if claim["size"] == "full" else f"{claim['size']} rows"
                    place = f"{claim['where']}; {claim['encoder']}, {size}"
                    yield f"      {claim['word']}: {claim['says']} ({place})"
    if not ran and item.name in published_names(root):
        config = read_published(root, item.name).config
        yield from (f"    claimed, not tested here: {claim.says} ({claim.where})" for claim in config.claims)
        yield from ([f"    missing: {config.missing}"] if config.missing else [])


if __name__ == "__main__":
    run(
        main,
        argument("item", "a paper, such as tdt, or a table or figure, such as hype_table1. Without it: all", nargs="?"),
        flag("--report", "every claim with its verdict, where a preset has run in this project"),
    )

"""``docs/papers.md``: every table and figure of the papers, what makes it here, and how far that is the paper's.

python -m tests.papers.page > docs/papers.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from regft_core.grid.time import assumed, spend
from regft_core.names import plural
from regft_core.settings.cost import plan_rows
from regft_core.settings.params_errors import moves
from regft_core.settings.project import Project
from regft_core.settings.published import read_published
from tests.papers.protocols import PROTOCOLS, Item, read_protocols
from tests.papers.resolved import origins
from tests.small_project import REPOSITORY, preset

PAGE = "docs/papers.md"
#: More settings that differ than this are counted; the protocol lists them.
NAMED = 3
HEAD = f"""\
<!-- made by python -m tests.papers.page from {PROTOCOLS}; tested -->
# Tables and figures of the five papers

`regft preset NAME` runs a preset and puts the printed numbers beside ours. Each item links its protocol:
every setting with the section that states it, or with the reason for ours. A test compares protocols with presets.

- *Settings* are counted: stated by the paper; stated, but lost in the text at hand; left open by the paper; run
  otherwise here. *Differs* names the last, and what differs apart from settings.
- *GPU hours*: from nothing, all presets of the item, on one A100 or H100: 6 operations per weight and token, rows of
  `max_length` tokens, 25 TFLOP/s in fp32 and 120 in bf16, evaluation left out. Equal runs of several presets are
  trained once.

[benchmarks/README.md](../benchmarks/README.md) tells which claims a small encoder shows on real rows.
"""


def _entry(root: Path, item: Item) -> str:
    """Return the line of a table or figure. Raises ConfigError where a preset is wrong."""
    config, projects = item.config, {name: preset(name) for name in item.config.presets}
    settings = origins(item)
    makers = [f"`{name}`" for name in config.presets] + [f"evaluation `{name}`" for name in config.evaluations]
    parts = [f"- [{config.item}](../{PROTOCOLS}/{item.name}.yaml): {config.shows}. {', '.join(makers) or 'Blocked'}."]
    if compared := ", ".join(dict.fromkeys(filter(None, map(_compared, projects.values())))):
        parts.append(f"Compared: {compared}.")
    if projects:
        counts = ", ".join(f"{len(paths)} {kind.replace('_', ' ')}" for kind, paths in settings.items())
        parts.append(f"Settings: {counts}. {_cost(root, projects)} GPU hours.")
    paths = settings["differs"]
    differs = [config.blocked] if config.blocked else []
    differs += [f"`{path}`" for path in paths] if len(paths) <= NAMED else [f"{len(paths)} settings, see the protocol"]
    differs += config.differs
    pinned = {name: [one.revision for one in project.encoders() if one.revision] for name, project in projects.items()}
    loose = [name for name, revisions in pinned.items() if any(map(moves, revisions))]
    differs += [f"revision not pinned: {', '.join(f'`{name}`' for name in loose)}"] if loose else []
    if differs:
        parts.append(f"{'Why' if config.blocked else 'Differs'}: {'; '.join(differs)}.")
    return " ".join(parts)


def _compared(project: Project) -> str:
    """The means and claims that a preset puts beside ours, by table; empty where it names none."""
    found = []
    for name in project.params.report.published:
        config = read_published(project.root, name)
        means = sum(len(row.scores) for row in config.rows if row.arm)
        said = [f"{means} means"] * bool(means) + [plural(len(config.claims), "claim")]
        found.append(f"[{', '.join(said)}](../published/{name}.yaml)")
    return ", ".join(found)


def _cost(root: Path, projects: Mapping[str, Project]) -> str:
    """GPU hours of all presets from nothing, by the declared passes and the published sizes of the sets."""
    total, unknown = 0.0, 0
    for project in projects.values():
        bare = replace(project, root=root / PROTOCOLS)  # where nothing is prepared, measured or stored
        time = spend(bare, plan_rows(bare), lambda cell: assumed(bare, cell.task, on_cpu=False))  # noqa: B023
        total, unknown = total + sum(time.cells.values()) / 3600, unknown + time.unknown
    hours = f"{total:.2g}" if total < 10 else f"{total:,.0f}"
    return hours + (f", and {unknown} runs of unknown length" if unknown else "")


def page(root: Path) -> str:
    """The page."""
    text = HEAD.splitlines()
    for title, items in groupby(read_protocols(root), lambda item: item.paper.config.title):
        text += ["", f"## {title}", "", *(_entry(root, item) for item in items)]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    print(page(REPOSITORY), end="")

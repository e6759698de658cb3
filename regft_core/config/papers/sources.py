"""Every table and figure of the papers, and what makes it here: ``docs/papers.yaml``, printed as ``docs/papers.md``.

python -m regft_core.config.papers.sources --markdown > docs/papers.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regft_core.config.messages.explain import validate
from regft_core.config.preset import preset_names
from regft_core.config.schema import NameList, StrictModel
from regft_core.config.yaml.document import load_yaml
from regft_core.errors import ConfigError, Problem, RegftError
from regft_core.names import suggestion

FILE = "docs/papers.yaml"
TITLES = {
    "tdt": "TDT (Zeng et al., Findings of ACL 2022)",
    "hype": "HyPe (Yuan et al., ACL 2023)",
    "mask_tuning": "Mask-tuning (Ghanbarzadeh et al., 2023)",
    "pats": "PATS (Zhang et al., EMNLP 2022)",
    "weight_mixup": "Weight mixup (Somayajula et al., NAACL 2024)",
}
STATES = {"run": "run here on real data", "miniature": "miniature only", "blocked": "blocked"}


class Item(StrictModel):
    """One table or figure."""

    item: str = Field(min_length=1)
    shows: str = Field(min_length=1)
    presets: NameList = Field((), description="beginnings of names in pipelines/presets")
    evaluations: NameList = Field((), description="evaluations that draw it from any run")
    state: Literal["run", "miniature", "blocked"]
    differs: str = Field("", description="what differs by necessity, or why it is blocked")


Items = Annotated[tuple[Item, ...], Field(strict=False, min_length=1)]


class PapersConfig(StrictModel):
    """The whole file."""

    tdt: Items
    hype: Items
    mask_tuning: Items
    pats: Items
    weight_mixup: Items

    def papers(self) -> dict[str, tuple[Item, ...]]:
        """Paper -> its items."""
        return {name: getattr(self, name) for name in TITLES}


def read_papers(root: Path) -> PapersConfig:
    """Read the list.

    Raises:
        ConfigError: it is wrong, names presets that are not there, or leaves an item without maker and reason.
    """
    document = load_yaml(root / FILE, root)
    config, problems = validate(PapersConfig, document)
    if config is None:
        raise ConfigError(problems)
    presets = preset_names(root)
    for paper, items in config.papers().items():
        for i, item in enumerate(items):
            problems += [
                document.problem(
                    "unknown-preset",
                    (paper, i, "presets"),
                    f"no preset begins with '{name}'",
                    suggestion(name, presets),
                )
                for name in item.presets
                if not _of(name, presets)
            ]
            made = bool(item.presets or item.evaluations)
            if (item.state == "blocked") == made or (not made and not item.differs):
                message = "an item is made by presets or evaluations, or is blocked and says why"
                problems.append(
                    document.problem(
                        "incomplete-entry", (paper, i), message, "name its makers, or give state and differs"
                    )
                )
    if problems:
        raise ConfigError(list[Problem](problems))
    return config


def _of(beginning: str, presets: Sequence[str]) -> list[str]:
    """The preset of that name and its variants with other encoders (``<name>_...``)."""
    return [name for name in presets if name == beginning or name.startswith(f"{beginning}_")]


def as_markdown(papers: Mapping[str, Sequence[Item]], presets: Sequence[str]) -> str:
    """The page."""
    lines = [
        "<!-- made by python -m regft_core.config.papers.sources --markdown from docs/papers.yaml; tested -->",
        "# Tables and figures of the five papers",
        "",
        "Presets run with `python -m stages.preset NAME` (a GPU and the hub; GPU hours: `python -m stages.config "
        "plan --preset NAME`) and put the printed numbers of `published/` beside ours; evaluations are switched on in "
        "`params.yaml`. *Miniature*: every arm runs in the tests with a tiny encoder on a few rows. Each preset's head "
        "lists what it assumes.",
    ]
    for paper, items in papers.items():
        count = {state: sum(item.state == state for item in items) for state in STATES}
        told = ", ".join(f"{n} {STATES[state]}" for state, n in count.items() if n)
        lines += ["", f"## {TITLES[paper]}", "", f"{len(items)} items: {told}.", ""]
        lines += ["| item | what it shows | made by | differs by necessity | state |", "|---|---|---|---|---|"]
        for item in items:
            makers = [f"`{name}`" for one in item.presets for name in _of(one, presets)]
            makers += [f"evaluation `{name}`" for name in item.evaluations]
            cells = [item.item, item.shows, ", ".join(makers) or "-", item.differs or "-", STATES[item.state]]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the list, or print it; returns the exit code."""
    parser = argparse.ArgumentParser("python -m regft_core.config.papers.sources", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--markdown", action="store_true", help="print docs/papers.md")
    given = parser.parse_args(arguments)
    try:
        found = read_papers(Path()).papers()
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        return error.exit_code
    if given.markdown:
        print(as_markdown(found, preset_names(Path())), end="")
    else:
        print(
            f"{sum(map(len, found.values()))} tables and figures of {len(found)} papers, all with a maker or a reason"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

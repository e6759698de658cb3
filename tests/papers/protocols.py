"""Statements of the papers on every table and figure: ``published/protocols``, one file per paper and one per item.

``<paper>.yaml`` holds what the paper says of all its items, ``<paper>_<item>.yaml`` what it says of one. ``values`` are
settings of the resolved preset, each with where the paper states it, or why it is ours; the tests compare them
with what the presets run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from regft_core.errors import ConfigError, Problem
from regft_core.schema import Inconsistency, Name, NameList, StrictModel
from regft_core.settings.document import Document
from regft_core.settings.validate import validate
from regft_core.settings.yaml_paths import PUBLISHED, names, read

PROTOCOLS = f"{PUBLISHED}/protocols"
Text = Annotated[str, Field(min_length=1)]
#: Setting, or pattern with ``*``, -> its value and origin.
Values = dict[str, dict[str, Any]]


class PaperConfig(StrictModel):
    """Statements of a paper on all its items."""

    title: Text
    method: Name = Field(description="its regulariser: every option of it is declared wherever it runs")
    values: Values = Field({}, description="setting, or pattern with *, -> what is said of it")


class ItemConfig(StrictModel):
    """Statements of a paper on one table or figure, and what makes it here."""

    item: Text = Field(description="as the paper numbers it")
    shows: Text
    presets: NameList = Field((), description="files of pipelines/presets")
    evaluations: NameList = Field((), description="evaluations that draw it from runs")
    blocked: str = Field("", description="why nothing here makes it")
    values: Values = Field({}, description="stronger than the paper's")
    per_preset: dict[Name, Values] = Field({}, description="of single presets, stronger still")
    differs: Annotated[tuple[Text, ...], Field(strict=False)] = Field((), description="from the paper, in no setting")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """No maker and no reason, or both; settings of presets that are not its own."""
        if bool(self.blocked) == bool(self.presets or self.evaluations):
            yield (), "an item is made by presets or evaluations, or it is blocked and says why"
        for name in self.per_preset:
            if name not in self.presets:
                yield ("per_preset", name), f"'{name}' is none of the item's presets"


@dataclass(frozen=True)
class Item:
    """One table or figure with its file."""

    name: str
    config: ItemConfig
    document: Document

    @property
    def order(self) -> tuple[bool, list[int]]:
        """Tables before figures, each in the order of their numbers."""
        numbers = [int(number) for number in re.findall(r"\d+", self.config.item)]
        return not self.config.item.startswith("Table"), numbers or [99]


@dataclass(frozen=True)
class Paper:
    """One paper with its items."""

    name: str
    config: PaperConfig
    document: Document
    items: tuple[Item, ...]


def read_protocols(root: Path) -> tuple[Paper, ...]:
    """Read all papers, sorted by name. Raises ConfigError with every problem of every file."""
    problems: list[Problem] = []
    papers: dict[str, tuple[PaperConfig, Document]] = {}
    items: list[Item] = []
    for name in names(root, PROTOCOLS):
        document = read(root, PROTOCOLS, name)
        assert document is not None
        if "title" in document.data:
            paper, wrong = validate(PaperConfig, document)
            papers |= {name: (paper, document)} if paper else {}
        else:
            item, wrong = validate(ItemConfig, document)
            items += [Item(name, item, document)] if item else []
        problems += wrong
    if problems:
        raise ConfigError(problems)
    items.sort(key=lambda item: item.order)
    return tuple(
        Paper(name, *papers[name], tuple(item for item in items if item.name.startswith(f"{name}_")))
        for name in sorted(papers)
    )

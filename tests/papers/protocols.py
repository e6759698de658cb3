"""Statements of the papers on every table and figure: ``published/protocols``, one file per paper and one per item.

``<paper>.yaml`` holds what the paper says of all its items, ``<paper>_<item>.yaml`` what it says of one. ``values`` are
settings of the resolved preset, each with its value on each task and where the paper states it, or why it is ours; the
tests compare them with what the presets run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from regft_core.errors import ConfigError
from regft_core.schema import Inconsistency, Name, NameList, StrictModel
from regft_core.settings.validate import validate
from regft_core.settings.yaml_paths import PUBLISHED, names, read

PROTOCOLS = f"{PUBLISHED}/protocols"
Text = Annotated[str, Field(min_length=1)]
#: Where a value is from: of these keys a value has exactly one. lost: the paper states it, the text at hand lost it.
ORIGINS = ("stated", "lost", "not_stated", "differs")


class Value(StrictModel):
    """One setting: what runs (``on``: task -> value), and where the paper says so, or why it is ours."""

    value: Any = None
    on: dict[str, Any] = {}  # noqa: RUF012
    stated: str = ""
    lost: str = ""
    not_stated: str = ""
    differs: str = ""

    def inconsistencies(self) -> Iterator[Inconsistency]:
        if not self.on and "value" not in self.model_fields_set:
            yield (), "a setting has 'value', 'on' (task -> value), or both"
        if sum(bool(getattr(self, name)) for name in ORIGINS) != 1:
            yield (), f"a setting has exactly one of {', '.join(ORIGINS)}"

    def names(self, task: str) -> bool:
        """Whether ``task`` has a value here."""
        return task in self.on or "value" in self.model_fields_set

    def of(self, task: str) -> Any:
        """The value on ``task``."""
        return self.on.get(task, self.value)

    @property
    def origin(self) -> str:
        return next(name for name in ORIGINS if getattr(self, name))


#: Setting, or pattern with ``*``, -> its value.
Values = dict[str, Value]


class PaperConfig(StrictModel):
    """Statements of a paper on all its items."""

    title: Text
    method: Name = Field(description="its regulariser: every option of it is declared wherever it runs")
    values: Values = {}  # noqa: RUF012


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
class Paper:
    """One paper."""

    name: str
    config: PaperConfig


@dataclass(frozen=True)
class Item:
    """One table or figure of a paper."""

    name: str
    config: ItemConfig
    paper: Paper

    @property
    def order(self) -> tuple[str, bool, list[int]]:
        """By papers, tables before figures, each in the order of their numbers."""
        numbers = [int(number) for number in re.findall(r"\d+", self.config.item)]
        return self.paper.name, not self.config.item.startswith("Table"), numbers or [99]

    def value(self, preset: str, path: str, task: str = "") -> Value | None:
        """Return the value of a setting: that of a preset, else of the item, else of the paper.

        In each, the value of one task (``tasks.<task>.<path>``) comes first, a pattern last.
        """
        own, named = self.config, [f"tasks.{task}.{path}", path] if task else [path]
        for values in (own.per_preset.get(preset, {}), own.values, self.paper.config.values):
            patterns = (key for name in named for key in values if "*" in key and fits(key, name))
            for key in (*(name for name in named if name in values), *patterns):
                if values[key].names(task):
                    return values[key]
        return None


def read_protocols(root: Path) -> list[Item]:
    """Read the items of all papers in their order. Raises ConfigError with every problem of every file."""
    papers: dict[str, Paper] = {}
    configs: dict[str, ItemConfig] = {}
    problems = []
    for name in names(root, PROTOCOLS):
        document = read(root, PROTOCOLS, name)
        assert document is not None
        model: Any = PaperConfig if "title" in document.data else ItemConfig
        config, wrong = validate(model, document)
        problems += wrong
        if isinstance(config, PaperConfig):
            papers[name] = Paper(name, config)
        elif isinstance(config, ItemConfig):
            configs[name] = config
    if problems:
        raise ConfigError(problems)
    items = (
        Item(name, config, paper)
        for paper in papers.values()
        for name, config in configs.items()
        if name.startswith(f"{paper.name}_")
    )
    return sorted(items, key=lambda item: item.order)


def fits(pattern: str, path: str) -> bool:
    """Whether a pattern means a path; ``*`` stands for a part of one key."""
    return _compiled(pattern).fullmatch(path) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", r"[^.]*"))


def matches(key: str, path: str, tasks: Collection[str]) -> bool:
    """Whether ``key`` names the setting ``path``, of all tasks or of one of these."""
    return any(fits(key, name) for name in (path, *(f"tasks.{task}.{path}" for task in tasks if task)))

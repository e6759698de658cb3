"""What the papers state of every table and figure: ``published/protocols``, one file per paper and one per item.

``<paper>.yaml`` holds what the paper says of all its items, ``<paper>_<item>.yaml`` what it says of one. Keys are
settings of the resolved preset (``resolved.py``). Each value says whether the paper states it and where, or why it is
ours. ``resolved.py`` compares them with what a preset runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema import ConsistentModel, Inconsistency, Name, NameList, StrictModel
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.files import PRESETS, PUBLISHED, names, read, ships
from regft_core.settings.preset import preset_names
from regft_core.settings.validate import validate

PROTOCOLS = f"{PUBLISHED}/protocols"
#: Where a value is from: the keys of which a value has exactly one.
ORIGINS = ("stated", "not_stated", "differs")
Text = Annotated[str, Field(min_length=1)]


class Value(ConsistentModel):
    """One setting: what runs, and where it is from."""

    value: Any = Field(None, description="on every task that 'on' does not name")
    on: dict[Name, Any] = Field({}, description="task -> value")
    stated: str = Field("", description="where the paper says so: section, table or caption")
    not_stated: str = Field("", description="why we chose it: the paper does not say")
    differs: str = Field("", description="what the paper says and where, and why another value runs")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """No value; no origin, or several."""
        if not self.on and "value" not in self.model_fields_set:
            yield (), "a setting has 'value', 'on' (task -> value), or both"
        if sum(bool(getattr(self, name)) for name in ORIGINS) != 1:
            yield (), "a setting has exactly one of 'stated', 'not_stated' and 'differs'"

    def names(self, task: str) -> bool:
        """Whether it has a value on ``task`` (empty: a setting of the whole preset)."""
        return task in self.on or "value" in self.model_fields_set

    def of(self, task: str) -> Any:
        """The value on ``task``."""
        return self.on.get(task, self.value)

    @property
    def origin(self) -> str:
        """Its one of ``ORIGINS``."""
        return next(name for name in ORIGINS if getattr(self, name))


Values = dict[str, Value]


class PaperConfig(StrictModel):
    """What a paper says of all its items."""

    title: Text
    method: Name = Field(description="its regulariser: every option of it is declared wherever it runs")
    values: Values = Field({}, description="setting, or pattern with *, -> what is said of it")


class ItemConfig(ConsistentModel):
    """What a paper says of one table or figure, and what makes it here."""

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
    paper: str
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

    def value(self, item: Item, preset: str, path: str, task: str = "") -> tuple[Value, Document, KeyPath] | None:
        """What is said of a setting, and where: the preset's own, then the item's, then the paper's.

        In each of them what is said of one task (``tasks.<task>.<path>``) comes first, a pattern last.
        """
        own: KeyPath = ("per_preset", preset)
        layers: tuple[tuple[Mapping[str, Value], Document, KeyPath], ...] = (
            (item.config.per_preset.get(preset, {}), item.document, own),
            (item.config.values, item.document, ("values",)),
            (self.config.values, self.document, ("values",)),
        )
        for values, document, at in layers:
            for key in _keys(values, path, task):
                if values[key].names(task):
                    return values[key], document, (*at, key)
        return None


def _keys(values: Collection[str], path: str, task: str) -> Iterator[str]:
    named = [f"tasks.{task}.{path}", path] if task else [path]
    yield from (name for name in named if name in values)
    yield from (key for name in named for key in values if "*" in key and _fits(key, name))


def _fits(pattern: str, path: str) -> bool:
    """Whether a pattern means a path; ``*`` stands for a part of one key."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]*"), path) is not None


def matches(key: str, path: str, tasks: Collection[str]) -> bool:
    """Whether what is said under ``key`` is said of the setting ``path``."""
    return any(_fits(key, name) for name in (path, *(f"tasks.{task}.{path}" for task in tasks if task)))


def read_protocols(root: Path) -> tuple[Paper, ...]:
    """All papers, sorted by name.

    Raises:
        ConfigError: every problem of every file; presets that are not there, and those that no item names.
    """
    problems = list[Problem]()
    documents = dict[str, Document]()
    for name in names(root, PROTOCOLS):
        try:
            if (own := read(root, PROTOCOLS, name)) is not None:
                documents[name] = own
        except ConfigError as error:
            problems += error.problems
    papers, items = dict[str, PaperConfig](), list[Item]()
    for name, document in documents.items():
        if "title" in document.data:
            paper, found = validate(PaperConfig, document)
            papers |= {name: paper} if paper else {}
        else:
            item, found = validate(ItemConfig, document)
            of = max((one for one in documents if name.startswith(f"{one}_")), key=len, default="")
            items += [Item(name, of, item, document)] if item else []
            if not of:
                message = f"'{name}' begins with no paper's name"
                found.append(document.problem("unknown-paper", (), message, suggestion(name, papers, "papers")))
        problems += found
    problems = problems or list(_wrong_presets(root, items))
    if problems:
        raise ConfigError(problems)
    ordered = sorted(items, key=lambda item: item.order)
    return tuple(
        Paper(name, papers[name], documents[name], tuple(item for item in ordered if item.paper == name))
        for name in sorted(papers)
    )


def _wrong_presets(root: Path, items: Collection[Item]) -> Iterator[Problem]:
    presets = preset_names(root)
    for item in items:
        for i, name in enumerate(item.config.presets):
            if name not in presets:
                hint = suggestion(name, presets, "presets there")
                yield item.document.problem("unknown-preset", ("presets", i), f"no preset is called '{name}'", hint)
    named = {name for item in items for name in item.config.presets}
    for name in presets:  # a project's own preset needs no paper
        if name not in named and ships(PRESETS, name):
            message = f"no item of {PROTOCOLS} names the preset '{name}'"
            yield Problem("undeclared-preset", PROTOCOLS, 0, "presets", message, "add it to its table or figure")

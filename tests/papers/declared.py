"""What a protocol says of a setting: its value on each task, and whether the paper states it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from regft_core.schema import Inconsistency, StrictModel
from tests.papers.protocols import Item, Paper

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
        """Whether something is said of ``task``."""
        return task in self.on or "value" in self.model_fields_set

    def of(self, task: str) -> Any:
        """The value on ``task``."""
        return self.on.get(task, self.value)

    @property
    def origin(self) -> str:
        return next(name for name in ORIGINS if getattr(self, name))


@dataclass(frozen=True)
class Declared:
    """The values of one item of a paper; the strongest are those of single presets, the weakest the paper's."""

    paper: Paper
    item: Item

    @cached_property
    def of_item(self) -> dict[str, Value]:
        return _values(self.item.config.values)

    @cached_property
    def of_presets(self) -> dict[str, dict[str, Value]]:
        return {preset: _values(values) for preset, values in self.item.config.per_preset.items()}

    @cached_property
    def of_paper(self) -> dict[str, Value]:
        return _values(self.paper.config.values)

    def value(self, preset: str, path: str, task: str = "") -> Value | None:
        """What is said of a setting. What is said of one task (``tasks.<task>.<path>``) comes first, a pattern last."""
        for values in (self.of_presets.get(preset, {}), self.of_item, self.of_paper):
            for key in _keys(values, path, task):
                if values[key].names(task):
                    return values[key]
        return None


def _values(data: Mapping[str, Any]) -> dict[str, Value]:
    return {key: Value.model_validate(value) for key, value in data.items()}


def _keys(values: Collection[str], path: str, task: str) -> Iterator[str]:
    named = [f"tasks.{task}.{path}", path] if task else [path]
    yield from (name for name in named if name in values)
    yield from (key for name in named for key in values if "*" in key and fits(key, name))


def fits(pattern: str, path: str) -> bool:
    """Whether a pattern means a path; ``*`` stands for a part of one key."""
    return _compiled(pattern).fullmatch(path) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", r"[^.]*"))


def matches(key: str, path: str, tasks: Collection[str]) -> bool:
    """Whether what is said under ``key`` is said of the setting ``path``."""
    return any(fits(key, name) for name in (path, *(f"tasks.{task}.{path}" for task in tasks if task)))

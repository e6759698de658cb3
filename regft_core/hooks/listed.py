"""Regularisers of a phase as the YAML lists them: each class with its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from regft_core.hooks.base import Regulariser
from regft_core.hooks.declare import Declares


class Entry(NamedTuple):
    """A regulariser class with its validated options."""

    cls: type[Regulariser]
    options: Any

    @property
    def name(self) -> str:
        """The regulariser's name."""
        return self.cls.name

    @property
    def declares(self) -> Declares:
        """What it does under these options."""
        return self.cls.declare(self.options)


def entries(registry: Mapping[str, type[Regulariser]], regularisers: Sequence[tuple[str, Any]]) -> list[Entry]:
    """Pair each (name, options) of a phase with its class."""
    return [Entry(registry[name], options) for name, options in regularisers]


def active(stack: Sequence[Entry]) -> list[Entry]:
    """The regularisers whose strength is not 0."""
    return [entry for entry in stack if entry.declares.active]

"""Regularisers of a phase as the YAML lists them: each class with its options."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.declare import Declares
from regft_core.schema.method import Method, Registry


class Entry(NamedTuple("Pair", [("cls", type[Regulariser]), ("options", Any)])):
    """A regulariser class with its validated options."""

    @property
    def name(self) -> str:
        """The regulariser's name."""
        return self.cls.name

    @cached_property
    def declares(self) -> Declares:
        """The declaration under these options."""
        return self.cls.declare(self.options)

    @property
    def program(self) -> tuple[str, ...]:
        """The passes of the step program, where the regulariser owns that."""
        return self.declares.passes if implements(self.cls, "backward") else ()


def entries(registry: Registry, regularisers: Sequence[tuple[str, Any]]) -> list[Entry]:
    """Pair each (name, options) of a phase with its class."""
    return [Entry(registry[name], options) for name, options in regularisers]


def active(stack: Sequence[Entry]) -> list[Entry]:
    """The regularisers whose strength is not 0."""
    return [entry for entry in stack if entry.declares.active]


def answers_without_encoder(entries: Sequence[Entry]) -> Entry | None:
    """The regulariser that answers in place of a model and reads no encoder: what it kept is all there is."""
    owner = answers_for_model(entries)
    return owner if owner is not None and owner.declares.reads != "encoder" else None


def answers_for_model(entries: Sequence[Entry]) -> Entry | None:
    """The regulariser that answers in place of a model."""
    return next((e for e in active(entries) if implements(e.cls, "predict")), None)


def takes_steps(method: Method) -> bool:
    """Whether any phase takes optimiser steps; without them a method is solved, in seconds."""
    return any(phase.training.epochs for phase in method.phases)


def learns(registry: Registry, method: Method) -> bool:
    """Whether a method learns from labelled rows: it takes steps, or fits something to them."""
    labelled = (phase for phase in method.phases if phase.data.labels)
    acting = (entry for phase in labelled for entry in active(entries(registry, phase.regularisers)))
    return takes_steps(method) or any(implements(entry.cls, "fit") for entry in acting)


def in_the_way_of_export(registry: Registry, regularisers: Sequence[tuple[str, Any]]) -> str | None:
    """The regulariser of a last phase whose runs have no export: plain weights would give other answers."""
    known = entries(registry, [pair for pair in regularisers if pair[0] in registry])
    return next((e.name for e in active(known) if implements(e.cls, "rebuild")), None)

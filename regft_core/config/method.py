"""A method as the rest of regft sees it: its YAML with every option validated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from regft_core.config.schema import NAME_PATTERN, MethodConfig, TrainingConfig

Protocol = Literal["finetune", "search_finetune"]


@dataclass(frozen=True)
class Method:
    """One listed method.

    Attributes:
        name: its file's name without ``.yaml``.
        protocol: where ``params.yaml`` lists it.
        config: its YAML.
        regularisers: (name, validated options) in the order of the YAML.
        search: validated options of the search phase, or None without one.
        training: the shared protocol with the method's overrides applied.
    """

    name: str
    protocol: Protocol
    config: MethodConfig
    regularisers: tuple[tuple[str, BaseModel], ...]
    search: BaseModel | None
    training: TrainingConfig


def is_name(text: str) -> bool:
    """Whether ``text`` may name a task or a method (``[a-z0-9_-]``, so no path can hide in it)."""
    return re.fullmatch(NAME_PATTERN, text) is not None and not text.endswith("\n")

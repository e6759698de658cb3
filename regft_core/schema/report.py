"""The section ``report`` of ``params.yaml``: what is compared with what, and how it is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from regft_core.schema import Name, NameList, OneOrMoreNames, StrictModel

#: ``task`` (its dev set) or ``task/set``.
PartName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)?$")]
#: A part of an average: a set, or several whose mean counts as one.
Part = PartName | Annotated[list[PartName], Field(min_length=1)]


def split_part(part: str) -> tuple[str, str]:
    """``mnli/mnli_mm`` as (task, set); a task alone stands for its dev set."""
    task, _, name = part.partition("/")
    return task, name or "dev"


def weights_of(parts: Sequence[Part]) -> dict[tuple[str, str], float]:
    """(task, set) -> weight; a nested list weighs as one part. Weights add up to 1."""
    weights: dict[tuple[str, str], float] = {}
    for part in parts:
        names = [part] if isinstance(part, str) else part
        for name in names:
            key = split_part(name)
            weights[key] = weights.get(key, 0.0) + 1 / len(parts) / len(names)
    return weights


class ReportConfig(StrictModel):
    """Comparisons of the report."""

    reference: Name = Field("vanilla", description="method that differences and cost ratios refer to")
    confidence: float = Field(0.95, gt=0.5, lt=1)
    bootstrap_samples: int = Field(4_000, ge=100, le=1_000_000)
    mixed_environments: Literal["refuse", "mark"] = Field(
        "refuse", description="runs of one comparison from different machines: no report, or one that says so"
    )
    looks: Literal["planned", "open"] = Field(
        "planned",
        description="open: seeds are added until it is clear; the first look already spends half of the error",
    )
    tolerance: float = Field(
        0.5, ge=0, le=100, description="points that a cheaper method may be expected to lose and is still taken"
    )
    decide_by: OneOrMoreNames = Field(
        (), description="sets whose mean score decides which method to take; the development set (dev) when absent"
    )
    not_run: NameList = Field((), description="methods that `regft fit` had no time for; the report says so")
    published: OneOrMoreNames = Field((), description="tables of published/ whose numbers are printed beside ours")
    averages: dict[Name, Annotated[list[Part], Field(min_length=1)]] = Field(
        {}, description="means over tasks (or task/set) of the primary metrics; a list inside counts as one part"
    )

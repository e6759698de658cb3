"""The section ``tuning`` of ``params.yaml``: which values are tried before a run, and what chooses among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from regft_core.schema import ConsistentModel, Inconsistency, Name

#: Dotted keys of settings, each with the values to try.
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]
Selection = Literal["split", "dev_as_published"]


class TuningConfig(ConsistentModel):
    """Values that are tried before a run, and what chooses among them. The chosen value is the strongest setting."""

    selection: Selection = Field(
        "split", description="what judges a trial: rows set aside from the training rows, or (marked) the dev set"
    )
    split: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.8, description="share of a run's training rows that its trials train on; the rest judges them"
    )
    folds: Annotated[int, Field(ge=2, le=20)] | None = Field(
        None, description="in the place of split: parts of a run's training rows, each judges a trial of the others"
    )
    per: Literal["seed", "cell"] | None = Field(
        None, description="whether each seed chooses for itself (as with split when absent) or all by their mean"
    )
    trials: Annotated[int, Field(ge=2, le=1000)] | None = Field(
        None, description="trials of every arm, drawn from its grid; the whole grid when absent"
    )
    values: Grid = Field({}, description="for every arm that trains")
    methods: dict[Name, Grid | list[dict[str, Any]]] = Field(
        {}, description="an arm's own: a grid crossed with values, a list of trials in its place, or {} for none"
    )

    @property
    def judged_by_seed(self) -> bool:
        """Whether each seed chooses its own trial."""
        return (self.per or ("seed" if self.selection == "split" else "cell")) == "seed"

    @property
    def share(self) -> float:
        """The share of a run's training rows that a trial trains on."""
        if self.selection == "dev_as_published":
            return 1.0
        return self.split if self.folds is None else 1 - 1 / self.folds

    @property
    def rounds(self) -> int:
        """How often a trial is trained."""
        return self.folds or 1

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """A choice on the dev set is one per cell; nothing to try."""
        on_dev = self.selection == "dev_as_published"
        if on_dev and self.per == "seed":
            yield ("per",), "selection: dev_as_published chooses once for all seeds, as papers do; set per: cell"
        if on_dev and self.folds is not None:
            yield ("folds",), "selection: dev_as_published sets no training rows aside; remove folds"
        if self.folds is not None and "split" in self.model_fields_set:
            yield ("split",), "split beside folds; keep one of the two"
        if not self.values and not any(self.methods.values()):
            yield (), "tuning names no values; give tuning.values or tuning.methods, or remove the section"

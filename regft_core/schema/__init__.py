"""The shape of ``params.yaml``, ``pipelines/tasks/*.yaml`` and ``pipelines/methods/*.yaml``, one file per subject.

Unknown keys are refused at every level. Nothing here imports torch: the whole configuration is validated in under a
second, before any stage runs. This file has what the others are made of: strict models, names, marks of fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from regft_core.catalogue import Catalogue

#: Names become DVC stage names, command-line words and directories, so they are kept this plain and short.
NAME_LENGTH = 64
NAME_PATTERN = rf"^[a-z0-9][a-z0-9_-]{{0,{NAME_LENGTH - 1}}}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Size = Annotated[int, Field(ge=2, le=1_000_000_000)] | Literal["full"]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
#: YAML has lists only; strict pydantic would refuse them for a tuple.
NameList = Annotated[tuple[Name, ...], Field(strict=False)]
#: One name may stand without its brackets.
ONE_OR_MORE = BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
OneOrMoreNames = Annotated[NameList, ONE_OR_MORE]
#: What is laid over a method's file, or over the ``training`` of a phase or task; it is checked as part of that.
Layer = dict[str, Any]


Inconsistency = tuple[tuple[str | int, ...], str]


class Inconsistent(ValueError):
    """Fields of a model that are right one by one and disagree."""

    def __init__(self, found: list[Inconsistency]) -> None:
        super().__init__("; ".join(message for _, message in found))
        self.found = found


class StrictModel(BaseModel):
    """Refuses unknown keys, wrong types, NaN, infinities and fields that disagree; cannot be changed once built."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Yield what is wrong between fields: keys that lead to the place, and a sentence."""
        yield from ()

    @model_validator(mode="after")
    def _consistent(self) -> StrictModel:
        if found := list(self.inconsistencies()):
            raise Inconsistent(found)
        return self


def named_in(catalogue: Catalogue, *beside: str) -> AfterValidator:
    """Refuses names that no file of the catalogue has, and that are none of those ``beside``."""
    return AfterValidator(lambda name: catalogue.check(name, beside))


Dropout = Literal["keep"] | Annotated[float, Field(ge=0, lt=1)]


class DropoutConfig(StrictModel):
    """Dropout probabilities; ``keep`` leaves what the checkpoint's configuration says."""

    hidden: Dropout = "keep"
    attention: Dropout = "keep"

"""The shape of ``params.yaml``, ``pipelines/tasks/*.yaml`` and ``pipelines/methods/*.yaml``, one file per subject.

Nothing here imports torch. This file has what the others are made of: strict models, names, marks of fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from regft_core.catalogue import Catalogue

#: Names become DVC stage names, command-line words and directories, so they are kept this plain and short.
NAME_LENGTH = 64
NAME_PATTERN = rf"^[a-z0-9][a-z0-9_-]{{0,{NAME_LENGTH - 1}}}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Size = Annotated[int, Field(ge=2, le=1_000_000_000)] | Literal["full"]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Item = TypeVar("Item")
#: YAML has lists only; strict pydantic would refuse them for a tuple.
Items = Annotated[tuple[Item, ...], Field(strict=False)]
SomeItems = Annotated[tuple[Item, ...], Field(strict=False, min_length=1)]
NameList = Items[Name]
#: One name may stand without its brackets.
ONE_OR_MORE = BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
OneOrMoreNames = Annotated[NameList, ONE_OR_MORE]
#: What is laid over a method's file, or over the ``training`` of a phase or task; it is checked as part of that.
Layer = dict[str, Any]
#: Keys that lead to a place, and a sentence on what is wrong there.
Inconsistency = tuple[tuple[str | int, ...], str]


class StrictModel(BaseModel):
    """Refuses unknown keys, wrong types, NaN, infinities and fields that disagree; cannot be changed once built."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Yield what is wrong between fields that are right one by one."""
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _told(cls, data: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Raise the errors of single fields, or where there are none the inconsistencies between fields.

        The error of an unknown or missing key has the model's fields in its context, for the hint.
        """
        details: list[InitErrorDetails] = []
        try:
            valid = validate(data)
            for keys, message in valid.inconsistencies():
                told = PydanticCustomError("inconsistent", "{message}", {"message": message, "keys": keys})
                details.append({"type": told, "loc": (), "input": data})
        except ValidationError as error:
            for item in error.errors(include_url=False):
                here = item["type"] in ("extra_forbidden", "missing") and len(item["loc"]) == 1
                context = {"fields": cls.model_fields} if here else item.get("ctx", {})
                told = PydanticCustomError(item["type"], item["msg"], context)
                details.append({"type": told, "loc": item["loc"], "input": item["input"]})
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return valid


def named_in(catalogue: Catalogue, *beside: str) -> AfterValidator:
    """Refuses names that no file of the catalogue has, and that are none of those ``beside``."""
    return AfterValidator(lambda name: catalogue.check(name, beside))


Dropout = Literal["keep"] | Annotated[float, Field(ge=0, lt=1)]


class DropoutConfig(StrictModel):
    """Dropout probabilities; ``keep`` leaves what the checkpoint's configuration says."""

    hidden: Dropout = "keep"
    attention: Dropout = "keep"

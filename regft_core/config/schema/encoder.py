"""The section ``model`` of ``params.yaml``, and what single tasks and methods change in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from regft_core.config.schema import Override, StrictModel

MaxLength = Annotated[int, Field(ge=8, le=4096)]
Pooling = Literal["head", "cls", "last", "mean", "unit_mean", "mask"]
Pairs = Literal["jointly", "separately"]


class EncoderConfig(StrictModel):
    """Which pretrained encoder is fine-tuned."""

    name: str = Field(min_length=1, description="alias (minilm, mpnet), local directory, or hub id")
    revision: str | None = Field(None, description="commit of a hub id; required for hub ids")
    max_length: MaxLength = Field(128, description="tokens; longer inputs are truncated")
    pooling: Pooling = Field(
        "head",
        description="the family's own head, or one linear: on the summary token (cls), on the mean of all tokens "
        "(mean), or on that mean scaled to length 1 (unit_mean); mask: the checkpoint's masked-LM head at the mask of "
        "a task's prompt",
    )
    pairs: Pairs = Field(
        "jointly", description="both texts of a pair in one input, or each in its own; separately needs a pooled vector"
    )

    def rows_per_example(self, paired: bool) -> int:
        """Rows of tokens that one example is: 2 for pairs whose texts are encoded separately."""
        return 2 if paired and self.pairs == "separately" else 1

    @model_validator(mode="after")
    def _consistent(self) -> EncoderConfig:
        if self.pairs == "separately" and self.pooling == "head":
            raise ValueError(
                "pairs: separately compares two pooled vectors, which the family's own head (pooling: head) cannot; "
                "set pooling: mean or pooling: cls"
            )
        if self.pairs == "separately" and self.pooling == "mask":
            raise ValueError("pooling: mask puts both texts of a pair into one template; set pairs: jointly")
        return self


class TaskModel(StrictModel):
    """What one task changes in ``model``."""

    max_length: Override[MaxLength] = None

    def over(self, model: EncoderConfig) -> EncoderConfig:
        """The section ``model`` with the task's values."""
        return model.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})


class ModelOverrides(StrictModel):
    """What a method changes in ``model``: its opponents need not share a pooling that suits nobody."""

    pooling: Override[Pooling] = None
    pairs: Override[Pairs] = None

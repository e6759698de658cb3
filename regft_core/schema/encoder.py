"""The section ``model`` of ``params.yaml``, and which of its keys single tasks and methods may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from regft_core.catalogue import POOLINGS
from regft_core.schema import ConsistentModel, Inconsistency, named_in

MaxLength = Annotated[int, Field(ge=8, le=4096)]
Pairs = Literal["jointly", "separately"]
#: Rows that one text may take.
MOST_WINDOWS = 64


#: What a method and a single phase change in ``model``; the values are checked once they are laid over it.
MethodModel = dict[Literal["pooling", "pairs"], Any]
PhaseModel = dict[Literal["name", "revision", "max_length", "pooling", "prompt"], Any]


class EncoderConfig(ConsistentModel):
    """Which pretrained encoder is fine-tuned."""

    name: str = Field(min_length=1, description="alias (minilm, mpnet), local directory, or hub id")
    revision: str | None = Field(None, description="commit of a hub id; required for hub ids")
    max_length: MaxLength = Field(128, description="tokens; longer inputs are truncated")
    pooling: Annotated[str, named_in(POOLINGS, "head", "mask")] = Field(
        "head",
        description="the family's own head, or one linear: on the summary token (cls), on the mean of all tokens "
        "(mean), on that mean scaled to length 1 (unit_mean), or on what another one of regft_core/models/poolings "
        "gives; mask: the checkpoint's masked-LM head at the mask of a task's prompt",
    )
    pairs: Pairs = Field(
        "jointly", description="both texts of a pair in one input, or each in its own; separately needs a pooled vector"
    )
    prompt: str | None = Field(
        None, min_length=1, description="an instruction that stands before every text, as the encoder's card says"
    )
    windows: int = Field(
        1,
        ge=1,
        le=MOST_WINDOWS,
        description="rows of a text beyond max_length, at most; their pooled vectors are averaged",
    )
    stride: int = Field(0, ge=0, description="tokens that neighbouring windows share")

    def rows_per_example(self, paired: bool) -> int:
        """Rows of tokens that one example is: 2 for pairs whose texts are encoded separately."""
        return 2 if paired and self.pairs == "separately" else 1

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Ways to read a pair or a long text that the pooling does not allow."""
        gives_vector = self.pooling not in ("head", "mask")
        if self.pairs == "separately" and not gives_vector:
            message = f"pairs: separately compares two pooled vectors, which pooling: {self.pooling} does not give"
            yield ("pairs",), f"{message}; set pooling: mean or cls, or pairs: jointly"
        if self.prompt is not None and self.pooling == "mask":
            yield ("prompt",), "pooling: mask reads texts in the task's template; put the words of 'prompt' there"
        if self.windows > 1 and not gives_vector:
            message = f"windows: {self.windows} averages pooled vectors, which pooling: {self.pooling} does not give"
            yield ("windows",), f"{message}; set pooling: mean, cls or last"
        if self.stride and self.windows == 1:
            yield ("stride",), f"stride: {self.stride} is what windows share, and there is one; set windows: 4"
        if 2 * self.stride >= self.max_length:
            yield (
                ("stride",),
                f"stride: {self.stride} must be less than half of max_length: {self.max_length}",
            )

"""The sections ``model`` and ``training`` of ``params.yaml``, and what tasks, methods and phases change in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from regft_core.catalogue import OPTIMISERS, POOLINGS, SAMPLERS, SCHEDULES
from regft_core.schema import DropoutConfig, Inconsistency, Name, StrictModel, named_in

#: Rows that one text may take.
MOST_WINDOWS = 64

#: What a method and a single phase change in ``model``; the values are checked once they are laid over it.
MethodModel = dict[Literal["pooling", "pairs"], Any]
PhaseModel = dict[Literal["name", "revision", "max_length", "pooling", "prompt"], Any]


class EncoderConfig(StrictModel):
    """Which pretrained encoder is fine-tuned."""

    name: str = Field(min_length=1, description="alias (minilm, mpnet), local directory, or hub id")
    revision: str | None = Field(None, description="commit of a hub id; required for hub ids")
    max_length: int = Field(128, ge=8, le=4096, description="tokens; longer inputs are truncated")
    pooling: Annotated[str, named_in(POOLINGS, "head", "mask")] = Field(
        "head",
        description="the family's own head, or one linear: on the summary token (cls), on the mean of all tokens "
        "(mean), on that mean scaled to length 1 (unit_mean), on the means of the last four layers (mean_last_four), "
        "or on what another one of regft_core/models/poolings gives; mask: the checkpoint's masked-LM head at the mask "
        "of a task's prompt",
    )
    pairs: Literal["jointly", "separately"] = Field(
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
            yield ("stride",), f"stride: {self.stride} must be less than half of max_length: {self.max_length}"


MAX_EPOCHS, MAX_STEPS = 10_000, 100_000_000
#: Which epoch's weights are the result. ``best_on_dev_as_published``: the set that also judges the run chooses.
CheckpointRule = Literal["last", "best_on_split", "best_on_dev_as_published"]
Beta = Annotated[float, Field(ge=0, lt=1)]

#: Values of ``training`` that only optimiser steps read. ``clip_norm`` is read by fits, too (Fisher information).
ONLY_STEPS_READ = (
    *("max_steps", "accumulation", "learning_rate", "optimizer", "betas", "epsilon", "weight_decay"),
    *("schedule", "warmup_ratio", "warmup_steps"),
)


class TrainingConfig(StrictModel):
    """The training protocol that every method shares unless its YAML overrides a value."""

    epochs: int = Field(10, ge=0, le=MAX_EPOCHS, description="0, in a method, trains nothing")
    max_steps: int | None = Field(None, ge=1, le=MAX_STEPS, description="optimiser steps; overrides epochs")
    batch_size: int = Field(16, ge=1, le=65_536, description="examples per optimiser step / accumulation")
    accumulation: int = Field(1, ge=1, le=65_536, description="batches whose gradients are averaged per step")
    #: One step of Adam moves a weight by about this much: a rate above 1 is a slip of the exponent.
    learning_rate: float = Field(1e-4, gt=0, le=1)
    optimizer: Annotated[str, named_in(OPTIMISERS)] = Field(
        "adamw", description="a file of regft_core/training/optimisers"
    )
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.999)
    epsilon: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.01, ge=0, description="decoupled; not on biases and LayerNorm")
    schedule: Annotated[str, named_in(SCHEDULES)] = Field("linear", description="one of regft_core/training/schedules")
    warmup_ratio: float = Field(0.1, ge=0, lt=1)
    warmup_steps: int | None = Field(None, ge=0, le=MAX_STEPS, description="optimiser steps; overrides warmup_ratio")
    clip_norm: float | None = Field(1.0, gt=0, description="global gradient norm; null switches it off")
    dropout: DropoutConfig = DropoutConfig()
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    allow_precision_loss: bool = Field(
        False, description="run a method in a precision that erases its effect; the result is marked"
    )
    sampler: Annotated[str, named_in(SAMPLERS)] = Field(
        "by_length", description="the order of the rows, one of regft_core/training/samplers"
    )
    bucket_batches: int = Field(
        50, ge=1, description="batches' worth of shuffled examples sorted by length together; 1: no bucketing"
    )
    checkpoint: CheckpointRule = Field(
        "last", description="which epoch's weights the last phase leaves; whatever is not last is marked"
    )
    checkpoint_share: float = Field(
        0.1, gt=0, lt=1, description="share of the training rows that best_on_split sets aside to choose the epoch"
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: a row's task loss times n / (K n_c), so that all classes count alike"
    )
    epoch_scores: bool = Field(
        False, description="score the dev set after every epoch of the last phase: shown, never selected on"
    )

    @property
    def judges_epochs(self) -> bool:
        """Whether the model is judged where an epoch ends, to choose one or to be looked at."""
        return self.checkpoint != "last" or self.epoch_scores

    def without_steps(self) -> TrainingConfig:
        """This protocol for a phase that takes no step: values that only steps read are the defaults, also in keys."""
        return self.model_copy(update={name: type(self).model_fields[name].get_default() for name in ONLY_STEPS_READ})

    def settled(self) -> dict[str, Any]:
        """The values as they stand in keys: without those that count for nothing."""
        values = self.model_dump(mode="json")
        if self.checkpoint != "best_on_split":
            del values["checkpoint_share"]
        return values


class MatchConfig(StrictModel):
    """The factor that makes plain epochs cost what another method costs, search and all."""

    match: Name


class PhaseTraining(TrainingConfig):
    """The protocol of one phase: the shared one with the phase's own values, and a factor of its length."""

    steps_factor: Annotated[float, Field(gt=0, le=1000)] | MatchConfig = Field(
        1.0, description="multiplies the number of epochs; {match: method} gives the compute of that method"
    )


def scaled(training: TrainingConfig, factor: float) -> TrainingConfig:
    """Return the plain protocol with ``factor`` times its epochs, and ``max_steps`` where it counts steps.

    Raises ValueError: the result is too short or too long.
    """
    name = "epochs" if training.max_steps is None else "max_steps"
    base, most = getattr(training, name), MAX_EPOCHS if name == "epochs" else MAX_STEPS
    length = round(base * factor)
    if training.epochs and base and not 1 <= length <= most:
        raise ValueError(f"steps_factor {factor:g} of {name} {base} makes {name} {length}; allowed: 1 to {most}")
    # With max_steps the epochs count for nothing, so they alone may be cut to what is allowed; no epochs stay none.
    epochs = min(max(min(1, training.epochs), round(training.epochs * factor)), MAX_EPOCHS)
    values = {field: getattr(training, field) for field in TrainingConfig.model_fields} | {"epochs": epochs}
    if name == "max_steps":
        values["max_steps"] = length
    return TrainingConfig.model_construct(**values)  # a ``PhaseTraining`` loses its factor

"""The section ``training`` of ``params.yaml``, and what tasks and the phases of methods change in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from regft_core.catalogue import OPTIMISERS
from regft_core.schema import DropoutConfig, Name, Override, StrictModel, named_in

# The values of ``training``, each with its bounds; a method's overrides use the same ones.
MAX_EPOCHS, MAX_STEPS = 10_000, 100_000_000
Epochs = Annotated[int, Field(ge=1, le=MAX_EPOCHS)]
EpochsOrNone = Annotated[int, Field(ge=0, le=MAX_EPOCHS)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
BatchSize = Annotated[int, Field(ge=1, le=65_536)]
Accumulation = Annotated[int, Field(ge=1, le=65_536)]
#: One step of Adam moves a weight by about this much: a rate above 1 is a slip of the exponent.
LearningRate = Annotated[float, Field(gt=0, le=1)]
#: The name of a file of ``regft_core/training/optimisers``.
Optimiser = Annotated[str, named_in(OPTIMISERS)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Beta, Beta], Field(strict=False)]
Epsilon = Annotated[float, Field(gt=0)]
WeightDecay = Annotated[float, Field(ge=0)]
Schedule = Literal["linear", "cosine", "constant"]
WarmupRatio = Annotated[float, Field(ge=0, lt=1)]
WarmupSteps = Annotated[int, Field(ge=0, le=MAX_STEPS)]
#: Which epoch's weights are the result. ``as_published``: the set that also judges the run chooses.
CheckpointRule = Literal["last", "best_on_split", "best_on_dev_as_published"]
CheckpointShare = Annotated[float, Field(gt=0, lt=1)]
ClipNorm = Annotated[float, Field(gt=0)]
ClassWeights = Literal["none", "balanced"]
Precision = Literal["fp32", "bf16", "fp16"]


#: Values of ``training`` that only optimiser steps read. ``clip_norm`` is read by fits, too (Fisher information).
ONLY_STEPS_READ = (
    "max_steps",
    "accumulation",
    "learning_rate",
    "optimizer",
    "betas",
    "epsilon",
    "weight_decay",
    "schedule",
    "warmup_ratio",
    "warmup_steps",
)


class TrainingConfig(StrictModel):
    """The training protocol that every method shares unless its YAML overrides a value."""

    epochs: Epochs = 10
    max_steps: Steps | None = Field(None, description="optimiser steps; overrides epochs")
    batch_size: BatchSize = Field(16, description="examples per optimiser step / accumulation")
    accumulation: Accumulation = Field(1, description="batches whose gradients are averaged per step")
    learning_rate: LearningRate = 1e-4
    optimizer: Optimiser = Field("adamw", description="a file of regft_core/training/optimisers")
    betas: Betas = (0.9, 0.999)
    epsilon: Epsilon = 1e-8
    weight_decay: WeightDecay = Field(0.01, description="decoupled; not on biases and LayerNorm")
    schedule: Schedule = "linear"
    warmup_ratio: WarmupRatio = 0.1
    warmup_steps: WarmupSteps | None = Field(None, description="optimiser steps; overrides warmup_ratio")
    clip_norm: ClipNorm | None = Field(1.0, description="global gradient norm; null switches it off")
    dropout: DropoutConfig = DropoutConfig()
    precision: Precision = "fp32"
    allow_precision_loss: bool = Field(
        False, description="run a method in a precision that erases its effect; the result is marked"
    )
    bucket_batches: int = Field(
        50, ge=1, description="batches' worth of shuffled examples sorted by length together; 1: no bucketing"
    )
    checkpoint: CheckpointRule = Field(
        "last", description="which epoch's weights the last phase leaves; whatever is not last is marked"
    )
    checkpoint_share: CheckpointShare = Field(
        0.1, description="share of the training rows that best_on_split sets aside to choose the epoch"
    )
    class_weights: ClassWeights = Field(
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
        """This protocol for a phase that takes no step: values that only steps read are the defaults.

        So a changed learning rate changes neither such a phase nor its key.
        """
        return self.model_copy(update={name: type(self).model_fields[name].get_default() for name in ONLY_STEPS_READ})

    def settled(self) -> dict[str, Any]:
        """The values as they stand in keys: a later addition at its default is left out of them."""
        values = self.model_dump(mode="json")
        if self.checkpoint != "best_on_split":
            del values["checkpoint_share"]
        for name in ("warmup_steps", "checkpoint", "class_weights", "epoch_scores"):
            if values[name] == type(self).model_fields[name].default:
                del values[name]
        return values


class MatchConfig(StrictModel):
    """The factor that makes plain epochs cost what another method costs, search and all."""

    match: Name


class TrainingLayer(StrictModel):
    """Values of ``training`` that are laid over weaker ones (none by default).

    A field has the type of the same field of ``TrainingConfig``; null is allowed only where it is there.
    """

    max_steps: Steps | None = None
    batch_size: Override[BatchSize] = None
    accumulation: Override[Accumulation] = None
    learning_rate: Override[LearningRate] = None
    optimizer: Override[Optimiser] = None
    betas: Override[Betas] = None
    epsilon: Override[Epsilon] = None
    weight_decay: Override[WeightDecay] = None
    schedule: Override[Schedule] = None
    warmup_ratio: Override[WarmupRatio] = None
    warmup_steps: WarmupSteps | None = None
    clip_norm: ClipNorm | None = None
    dropout: Override[DropoutConfig] = None
    precision: Override[Precision] = None
    allow_precision_loss: Override[bool] = None
    checkpoint: Override[CheckpointRule] = None
    checkpoint_share: Override[CheckpointShare] = None
    class_weights: Override[ClassWeights] = None
    epoch_scores: Override[bool] = None


class TaskTraining(TrainingLayer):
    """What one task changes in ``training``, before any method does."""

    epochs: Override[Epochs] = None

    def over(self, training: TrainingConfig) -> TrainingConfig:
        """``training`` with the task's values. Who says ``epochs`` alone means epochs: ``max_steps`` goes."""
        changes = {name: getattr(self, name) for name in self.model_fields_set}
        if "epochs" in changes:
            changes.setdefault("max_steps", None)
        if "warmup_ratio" in changes:
            changes.setdefault("warmup_steps", None)
        if (dropout := changes.get("dropout")) is not None:
            sides = {side: getattr(dropout, side) for side in dropout.model_fields_set}
            changes["dropout"] = training.dropout.model_copy(update=sides)
        return training.model_copy(update=changes)


class TrainingOverrides(TrainingLayer):
    """The values of ``training`` that one method changes."""

    epochs: Override[EpochsOrNone] = Field(None, description="0 trains nothing")
    steps_factor: Override[Annotated[float, Field(gt=0, le=1000)] | MatchConfig] = Field(
        None, description="multiplies the number of epochs; {match: method} gives the compute of that method"
    )

    def apply(self, training: TrainingConfig, factor: float | None = None) -> TrainingConfig:
        """Return ``training`` with this phase's overrides in place.

        ``factor`` is what ``steps_factor`` comes to where it names a method to match. Raises
        ValueError where :meth:`length_problem` has something to say.
        """
        if problem := self.length_problem(training, factor):
            raise ValueError(problem)
        training, factor = self._replaced(training), self._factor(factor)
        if factor is None:
            return training
        # With max_steps the epochs count for nothing, so they alone may be cut to what is allowed.
        least = min(1, training.epochs)  # no epochs stay none
        scaled = {"epochs": min(max(least, round(training.epochs * factor)), MAX_EPOCHS)}
        if training.max_steps is not None:
            scaled["max_steps"] = round(training.max_steps * factor)
        return training.model_copy(update=scaled)

    def length_problem(self, training: TrainingConfig, factor: float | None = None) -> str:
        """Why ``steps_factor`` makes these runs too short or too long; empty when it does not.

        ``factor`` as in :meth:`apply`.
        """
        training, factor = self._replaced(training), self._factor(factor)
        base, most, what = training.epochs, MAX_EPOCHS, "epochs"
        if training.max_steps is not None:
            base, most, what = training.max_steps, MAX_STEPS, "max_steps"
        if factor is None or base == 0:
            return ""
        length = round(base * factor)
        if 1 <= length <= most:
            return ""
        return f"steps_factor {factor:g} of {what} {base} makes {what} {length}; allowed: 1 to {most}"

    def _factor(self, matched: float | None) -> float | None:
        return self.steps_factor if isinstance(self.steps_factor, float) else matched

    def _replaced(self, training: TrainingConfig) -> TrainingConfig:
        # An explicit null switches clip_norm or max_steps off; for the other values it is refused.
        changes = {name: getattr(self, name) for name in self.model_fields_set if name != "steps_factor"}
        if "epochs" in changes:  # as in TaskTraining.over
            changes.setdefault("max_steps", None)
        if "warmup_ratio" in changes:
            changes.setdefault("warmup_steps", None)
        return training.model_copy(update=changes)

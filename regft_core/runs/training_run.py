"""Train one phase of one run: build the model, let the regularisers prepare it, fit, loop. This is in its key."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from regft_core.hooks.base import Regulariser
from regft_core.hooks.declare import Handed, Setting
from regft_core.kinds import find
from regft_core.models.devices import computing_alone
from regft_core.models.load import load_classifier
from regft_core.rng import derive
from regft_core.training.graphs import cuda_recorder
from regft_core.training.loop import EpochScores, Loop, Progression
from regft_core.training.stack import Stack
from regft_core.training.step import BatchStream, FitData
from regft_core.training.trainee import Trainee

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.encode import Encoded
    from regft_core.data.examples import Example
    from regft_core.kinds.regression import Scale
    from regft_core.models.features import Features
    from regft_core.models.source import ModelSource


@dataclass(frozen=True)
class PhaseInputs:
    """Inputs of one phase (one member of it).

    Attributes:
        entries: its regularisers with validated options.
        setting: what they may know of it; the weights of the classes follow from the rows.
        streams: names of the random streams: of noise and dropout, of the data order, of the head.
        encoded: tokenised rows; ``train_rows`` and ``validation_rows`` number some of them; ``examples``: as text.
        unlabelled: tokenised texts without labels, where a regulariser reads such in its steps.
        groups: the group of each row; None for a task without groups.
        labels: of the task whose rows these are; ``labelled``: whether they are learned.
        start: weights to start from, or None for the checkpoint's; ``start_head``: with their head.
        handed: what the phases that regularisers need have left.
        features: kept vectors of the frozen encoder; None where it is not that of the checkpoint.
    """

    entries: Sequence[tuple[type[Regulariser], Any]]
    setting: Setting
    streams: Mapping[str, str]
    source: ModelSource
    tokenizer: Any
    encoded: Encoded
    train_rows: Sequence[int]
    validation_rows: Sequence[int]
    labels: Sequence[str] | None
    device: str
    labelled: bool = True
    pooling: str = "head"
    deterministic: bool = True
    tf32: bool = False
    cuda_graphs: bool = False
    start: Mapping[str, Tensor] | None = None
    start_head: bool = True
    handed: Mapping[str, Handed] = field(default_factory=dict)
    unlabelled: Encoded | None = None
    examples: Sequence[Example] = ()
    groups: Sequence[str] | None = None
    features: Features | None = None

    @property
    def training_labels(self) -> list[Any]:
        return [self.encoded.labels[row] for row in self.train_rows]

    def target_scale(self) -> Scale | None:
        """The scale of the rows' targets, None for labels; raises RunFailed for one too narrow for float32."""
        return find(self.setting.kind).target_scale(self.training_labels) if self.labelled else None

    def learned(self, scale: Scale | None) -> PhaseInputs:
        """The same inputs with the targets as the network learns them."""
        if scale is None:
            return self
        labels = [scale.learned(label) for label in self.encoded.labels]
        examples = [replace(example, label=scale.learned(example.label)) for example in self.examples]
        return replace(self, encoded=replace(self.encoded, labels=labels), examples=examples)


@dataclass
class TrainedPhase:
    """A phase and its loop, if it is not ``skipped`` for a reason; the rest is known after training."""

    trainee: Trainee
    stack: Stack
    loop: Loop | None = None
    fit_seconds: float = 0.0
    skipped: str | None = None
    progression: Progression = field(default_factory=Progression)
    peak_memory_bytes: int | None = None
    looks: Sequence[EpochScores] = ()
    steps_per_epoch: int = 1


def make_deterministic(device: str, wanted: bool, tf32: bool = False) -> None:
    """Ask for deterministic kernels on a GPU; the CPU's are deterministic as they are."""
    if device.startswith("cuda"):
        torch.use_deterministic_algorithms(wanted)
        # Nothing here reads memory that it has not written; filling it first would be a kernel per tensor.
        settings: Any = torch.utils.deterministic
        settings.fill_uninitialized_memory = False
        # TF32 rounds away noise of 1e-5 in every matrix product, so it must be asked for.
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32


def build(inputs: PhaseInputs) -> tuple[Trainee, Stack]:
    """The model of a phase at its start weights, and its regularisers, before any edit."""
    setting = inputs.setting
    head_seed = derive(setting.seed, *inputs.streams["head"].split("/"))
    if setting.training.class_weights == "balanced":
        weights = find(setting.kind).balanced(inputs.training_labels, setting.num_labels)
        setting = replace(setting, class_weights=weights)
    model = load_classifier(
        inputs.source,
        kind=setting.kind,
        labels=inputs.labels,
        dropout=setting.training.dropout,
        head_seed=head_seed,
        pooling=inputs.pooling,
        rows_per_example=inputs.encoded.rows_per_example,
    ).to(inputs.device)
    device = torch.device(inputs.device)
    stack = Stack(inputs.entries, setting)
    trainee = Trainee(
        model,
        inputs.tokenizer,
        inputs.source,
        setting.seed,
        inputs.streams["noise"],
        device,
        features=inputs.features,
        # What answers in place of the model has no output layer, and learns from the targets as they are.
        scale=inputs.target_scale() if stack.predictor is None else None,
    )
    if "checkpoint" in stack.anchors:
        trainee.drop_anchor("checkpoint")
    if inputs.start is not None:
        trainee.load_weights(inputs.start, head=inputs.start_head)
    if "start" in stack.anchors:
        trainee.drop_anchor("start")
    return trainee, stack


def prepare(inputs: PhaseInputs, **loop_options: Any) -> TrainedPhase:
    """Everything of a phase that comes before the loop; raises ModelError, see ``train``."""
    make_deterministic(inputs.device, inputs.deterministic, inputs.tf32)
    trainee, stack = build(inputs)
    reason = stack.skip(trainee)
    if reason is not None:
        return TrainedPhase(trainee, Stack((), inputs.setting), skipped=reason)
    stack.prepare(trainee, inputs.handed)
    inputs = inputs.learned(trainee.scale)
    order, training, what = inputs.streams["order"], stack.setting.training, (trainee, stack.setting)
    stream = BatchStream(inputs.encoded, *what, order, inputs.train_rows, sampler=training.sampler)
    validation = unlabelled = None
    if inputs.validation_rows:
        validation = BatchStream(inputs.encoded, *what, f"{order}-validation", inputs.validation_rows)
    if stack.unlabelled and inputs.unlabelled is not None:
        unlabelled = BatchStream(inputs.unlabelled, *what, f"{order}-unlabelled", times=stack.unlabelled)
    if trainee.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(trainee.device)
    started = time.monotonic()
    rows = inputs.examples, inputs.groups
    stack.fit(trainee, FitData(trainee, stack.setting, stream, validation, *rows, stack.transformer))
    fit_seconds = time.monotonic() - started
    steps = stack.total_steps(len(inputs.train_rows))
    if inputs.cuda_graphs and trainee.device.type == "cuda":
        loop_options = {"recorder": cuda_recorder(), **loop_options}
    loop = Loop(trainee, stack, stream, training, validation, unlabelled, steps=steps, **loop_options)
    return TrainedPhase(trainee, stack, loop, fit_seconds)


@computing_alone()
def train(inputs: PhaseInputs, **loop_options: Any) -> TrainedPhase:
    """Run a phase to its end, with ``loop_options`` of :class:`Loop`. Raises RunFailed, ModelError, RegftError."""
    phase = prepare(inputs, **loop_options)
    if (loop := phase.loop) is not None:
        phase.progression = loop.train()
        phase.looks, phase.steps_per_epoch = loop.looks, loop.steps_per_epoch
        phase.loop = None  # it has the optimiser's memory
        device = phase.trainee.device
        phase.peak_memory_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return phase


def outcome_tensors(inputs: PhaseInputs, trained: TrainedPhase, *, weights: bool) -> dict[str, dict[str, Tensor]]:
    """Return what is stored of a phase: method state, kept tensors, ``weights`` (of the last one with views folded)."""
    stack, trainee = trained.stack, trained.trainee
    tensors = {"state": stack.hand(trainee), "kept": stack.keep(trainee) if inputs.setting.final else {}}
    tensors["decision"] = stack.decision()
    stack.export(trainee)
    if weights:
        tensors["weights"] = trainee.plain_weights() if inputs.setting.final else trainee.trained_weights()
    return {name: named for name, named in tensors.items() if named}

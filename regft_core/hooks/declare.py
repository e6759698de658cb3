"""Declarations of a method, questions to its phase, and the plain values of hooks; nothing here imports torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from regft_core.hooks.description import Description
from regft_core.lazy import np, torch
from regft_core.schema.method import FINETUNE, Phase
from regft_core.schema.training import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regft_core.data.batches import Batch
    from regft_core.data.examples import Example
    from regft_core.data.prompts import Prompt, Reading
    from regft_core.models.sites import EmbeddingSite, LayerSite
    from regft_core.training.step import FitData, Step
    from regft_core.training.trainee import Trainee
else:  # what hooks are handed, for annotations: a method's file imports neither torch nor training for them
    Batch = EmbeddingSite = Example = FitData = LayerSite = Step = Tensor = Trainee = Any

__all__ = ["Batch", "EmbeddingSite", "Example", "FitData", "LayerSite", "Step", "Tensor", "Trainee"]

#: What a later phase takes from an earlier one: its method state, that and its weights, or that and its answers to the
#: rows of the later phase, with ``hidden`` also its hidden states.
Need = Literal["state", "weights", "answers", "hidden"]
#: ``checkpoint``: as loaded, before any phase; ``start``: as the phase finds them, before its own edits.
Anchor = Literal["checkpoint", "start"]
#: On which side of clipping a regulariser sees and masks the gradient.
ClipSide = Literal["before_clip", "after_clip"]
#: Steps between two in which values are read from the device to be logged.
LOG_EVERY = 10
#: The option ``decision`` of heads that are solved.
DECISION = (
    "metric: offsets of the logits from out-of-fold answers to the training rows, where the task's metric is F1 or "
    "Matthews' correlation; largest: the most probable label (a control)"
)
#: What is changed before training: starting weights, or modules and views of weights.
Edit = Literal["weights", "structure"]


@dataclass(frozen=True)
class Setting:
    """Facts of a phase of a run before its model is built.

    Attributes:
        kind: a file of ``regft_core/kinds``.
        num_labels: outputs of the head (1 for regression).
        seed: the run's seed; all streams derive from it.
        training: the protocol with the phase's overrides and the negotiated dropout.
        phase: name of the phase.
        final: whether it is the last phase, whose weights are the result.
        keyword_segment: segment that token-level perturbations leave untouched, or None.
        max_length: tokens at which inputs are truncated; None where nothing reads raw text.
        value_range: smallest and largest value of the task (regression), or None.
        reading: the instruction before a text and the windows over it; None where there is neither.
        prompt: template and words of the task, where rows stand in the template (``pooling: mask``); else None.
        class_weights: those of ``Kind.balanced`` for the rows that the phase trains on, or None.
        metric, positive: the task's, and the label that it counts, where a regulariser fits to it
            (``Declares.fits_decision``, ``reads_metric``); else None.
    """

    kind: str
    num_labels: int
    seed: int
    training: TrainingConfig
    phase: str = "finetune"
    final: bool = True
    keyword_segment: str | None = None
    max_length: int | None = None
    reading: Reading | None = None
    value_range: tuple[float, float] | None = None
    prompt: Prompt | None = None
    class_weights: tuple[Any, ...] | None = None
    metric: str | None = None
    positive: int | None = None

    @property
    def keywords(self) -> int:
        """The number of the keyword segment in ``Batch.segment``; one that no token has where there is none."""
        return {None: -2, "text": 0, "text_pair": 1}[self.keyword_segment]


@dataclass(frozen=True)
class DropoutWish:
    """Needs of a regulariser for dropout: a probability to set, ``"on"`` (must not be 0) or None (indifferent).

    With ``either``, two passes must differ: one of the two is not 0, or another regulariser makes passes random
    (``Declares.random_passes``).
    """

    hidden: float | Literal["on"] | None = None
    attention: float | Literal["on"] | None = None
    either: bool = False


@dataclass(frozen=True)
class Declares:
    """Effects of a regulariser on its phase under given options; the defaults are those of plain fine-tuning.

    Attributes:
        active: False at strength 0: the phase is then plain fine-tuning, bit for bit.
        unlabelled: texts without labels that a step reads for each of its own rows (``Step.texts``): those of all
            training rows of the phase's task, and of its split ``unlabelled``.
        needs: earlier phase (by the name that the options give) -> what is taken of it.
        anchors: untouched weights that the method pulls toward; see ``Trainee.anchor``.
        edits: what is changed before training.
        edit_order: place among the regularisers that edit the model, and among hooks at one forward site. Two that
            edit the same thing at the same place are refused. Views of the input (TDT) come before noise.
        draws_anew: whether it draws pretrained tensors anew, so that they have nothing to do with the checkpoint.
        hands_over: what a phase before the last one hands over as its weights: the trained tensors behind a
            weight view, or what a forward pass sees (the view folded in). ``hand`` then returns the view's own tensors,
            into which a soup copies those of a member to score it.
        dropout: what it needs of dropout.
        passes: names of the passes that its ``backward`` runs, which owns the step program where there are some; or of
            those that its ``terms`` run beside the plain pass, which is called ``main``.
        trains_on_task: whether its step program trains on the task's loss, rather than on one of its own only.
        virtual_step: whether its step program looks ahead by a plain gradient step of the weights at the shared
            learning rate, so that what changes their update otherwise is refused.
        needs_hidden: whether ``terms`` reads the last hidden states of the plain pass.
        acts_in: the passes of the phase that it is restricted to; None: all of them.
        random_passes: whether two passes over one batch differ by it (noise, random weights), dropout aside.
        recordable: whether the pass with this regulariser in it is a function of weights and batch but for dropout,
            so that it can be recorded as a CUDA graph and replayed (``execution.cuda_graphs``). Not so where a method
            draws inside the pass from a generator of its own, or keeps what it has seen there.
        gradients_at: whether ``observe_gradients`` and ``gradient_masks`` see the gradient before clipping or after.
        optimizer: name of the optimiser this regulariser is defined on or brings, if it owns the update.
        owns_weights: whether the tensors used in the forward pass are a function of the trained ones.
        freezes_encoder: whether no tensor of the encoder is trained in this phase (a probe, a fitted head).
        trains_encoder: whether it acts on trained weights of the encoder, so that a frozen one leaves it nothing
            to do; refused beside ``freezes_encoder``. None: as its edits, anchors, weight view and optimiser say.
        moves_tokens: where hidden states have positions before those of the batch's tokens (virtual tokens): only
            ``inside`` the encoder, or also in the last ones.
        reads_positions: whether it reads or changes hidden states at the positions of the batch's tokens, ``inside``
            the encoder or the last ones; refused where they are moved. None: where it owns the step program or needs
            hidden states.
        fits_decision: whether its ``decision`` fits offsets of the logits to the metric, in a phase without steps.
        reads_metric: whether what it learns there depends on the metric in other ways, so on each metric.
        validation_share: whether the phase must set rows aside (``data.split`` below 1).
        answers_at_mask: whether the model answers by the words at the mask of a template; such a regulariser and
            ``model.pooling: mask`` need each other.
        demonstration_sets: sets of labelled training examples behind every row, over which evaluation averages.
        reads: what the answers depend on: the ``text`` alone of a bag of words, ``nothing`` of a constant.
        description: what only describes the method.
    """

    active: bool = True
    unlabelled: int = 0
    needs: Mapping[str, Need] = field(default_factory=dict)
    anchors: tuple[Anchor, ...] = ()
    edits: tuple[Edit, ...] = ()
    edit_order: int = 0
    draws_anew: bool = False
    hands_over: Literal["folded", "trained"] = "folded"
    dropout: DropoutWish = DropoutWish()
    passes: tuple[str, ...] = ()
    trains_on_task: bool = True
    virtual_step: bool = False
    needs_hidden: bool = False
    acts_in: tuple[str, ...] | None = None
    random_passes: bool = False
    recordable: bool = False
    gradients_at: ClipSide = "before_clip"
    optimizer: str | None = None
    owns_weights: bool = False
    freezes_encoder: bool = False
    trains_encoder: bool | None = None
    moves_tokens: Literal["inside", "everywhere"] | None = None
    reads_positions: bool | Literal["inside"] | None = None
    fits_decision: bool = False
    reads_metric: bool = False
    validation_share: bool = False
    answers_at_mask: bool = False
    demonstration_sets: int = 0
    reads: Literal["encoder", "text", "nothing"] = "encoder"
    description: Description = field(default=Description())

    def __post_init__(self) -> None:
        if self.trains_encoder is None:
            trains = "weights" in self.edits or self.owns_weights or bool(self.anchors) or self.optimizer is not None
            object.__setattr__(self, "trains_encoder", trains)


@dataclass
class ParameterGroup:
    """Parameters of a regulariser that need settings other than the shared ones."""

    parameters: dict[str, nn.Parameter]
    learning_rate: float | None = None
    weight_decay: float | None = None


def behind(prefix: str, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose name begins with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class Handed:
    """Result of an earlier phase: its key, its method state and, where they are needed, its weights or answers.

    ``answers`` [n, K] are its outputs for the rows of the phase that asks, as ``Batch.indices`` numbers them: logits,
    or values in the targets' unit. ``hidden`` [n, H] are its last hidden states for them, as ``Batch.mean`` has them.
    No dropout acts. Names in ``state`` have their regulariser's in front: ``fisher.mask/bert.encoder...``.
    """

    key: str
    state: dict[str, Tensor]
    weights: dict[str, Tensor] = field(default_factory=dict)
    answers: Tensor | None = None
    hidden: Tensor | None = None

    def of(self, regulariser: str) -> dict[str, Tensor]:
        """The state that ``regulariser`` handed over in that phase, under its own names."""
        return behind(f"{regulariser}.", self.state)


@dataclass(frozen=True)
class MainPass:
    """The plain forward pass of a step, for loss terms that are added to its loss.

    ``logits`` are [B, K] in fp32, ``hidden`` the last hidden states [B, n, H], where a regulariser asked for them, and
    ``loss`` is the task's, a scalar, as ``Regulariser.task_loss`` transforms it.
    """

    logits: Tensor
    hidden: Tensor | None
    loss: Tensor


@dataclass
class Diagnostics:
    """Numbers that methods log: (name, step, value) in ``values``; ``prefix`` is the regulariser's name."""

    prefix: str = ""
    values: list[tuple[str, int, float]] = field(default_factory=list)

    def log(self, name: str, step: int, value: float) -> None:
        """Add a value of a 0-based optimiser step; curves show it as ``<regulariser>.<name>``."""
        self.values.append((name, step, float(value)))

    def read(self, step: Step, **values: Tensor | float) -> None:
        """Add scalars of ``step`` by name, but only in every :data:`LOG_EVERY`-th: reading one waits for the device."""
        if step.index % LOG_EVERY == 0 and step.micro == 0:
            for name, value in values.items():
                number = value if isinstance(value, float) else float(value.detach())
                self.log(f"{self.prefix}.{name}", step.index, number)


# ------------------------------------------------- what several methods ask of their phase, in check_options


def reads_labels(phase: Phase) -> list[str]:
    """Say what to change in a phase that hides the labels from a regulariser that learns them."""
    return [] if phase.data.labels else ["it learns from labels; remove 'labels: false' from the data of its phase"]


def is_last(phase: Phase) -> list[str]:
    """Say what to change where something that only evaluation asks for is in an earlier phase."""
    if phase.name == FINETUNE:
        return []
    return [f"nobody asks for its answers after the phase '{phase.name}'; move it to the phase 'finetune'"]


# ------------------------------------------------------------------------------- what keep() holds, as safetensors only


def to_tensor(value: Any) -> Tensor:
    """``value`` (what JSON can hold) as the bytes of its JSON, uint8."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return torch.from_numpy(np.frombuffer(text.encode(), dtype=np.uint8).copy())


def from_tensor(tensor: Tensor) -> Any:
    """The value behind :func:`to_tensor`, from its bytes ``[n]``."""
    return json.loads(tensor.cpu().numpy().tobytes().decode())

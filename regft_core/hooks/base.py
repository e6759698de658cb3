"""The hooks that a method implements; ``training.stack`` calls them in the order of a step.

A method (a YAML file) is one phase or several; a phase lists regularisers, and a regulariser is
one class in ``regft_core/methods/``. It implements only the hooks it needs; everything else stays
that of plain fine-tuning.

Order within a phase: the model is loaded and the weights of its start are put in; ``edit_weights``
(Re-init, NoisyTune), then ``prepare`` (modules, views, sites), each in ``edit_order``; ``fit`` once;
the loop, with ``finish`` after its last step; ``hand`` (what later phases need), ``keep`` (what
evaluation and figures need), ``export`` in the reverse order of ``prepare``.

Order within an optimiser step: passes and backwards, unscale, ``before_clip``, clip,
``after_clip``, the optimiser, ``after_update``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regft_core.config.method import Phase
from regft_core.config.schema import StrictModel
from regft_core.config.schema.tasks import TaskConfig
from regft_core.config.schema.training import TrainingConfig
from regft_core.hooks.declare import (
    Anchor,
    Cost,
    Diagnostics,
    DropoutWish,
    Handed,
    MainPass,
    Need,
    ParameterGroup,
    Setting,
    Variant,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
    from torch import Tensor

    from regft_core.data.examples import Example
    from regft_core.training.fitting import FitData
    from regft_core.training.step import Step
    from regft_core.training.trainee import Trainee

__all__ = [
    "Cost",
    "Diagnostics",
    "DropoutWish",
    "Handed",
    "MainPass",
    "NoOptions",
    "ParameterGroup",
    "Regulariser",
    "Setting",
    "Variant",
]


class NoOptions(StrictModel):
    """Options of a regulariser that has none."""


class Regulariser:
    """Base of all regularisers; the defaults are those of plain fine-tuning.

    Class methods answer questions before any model exists (validation, dry run, cost); they
    must not import torch. Instance methods run inside training.
    """

    #: Name in YAML; also the prefix of the regulariser's random streams.
    name: ClassVar[str] = ""
    Config: ClassVar[type[StrictModel]] = NoOptions
    #: Options of strength 0, under which training equals plain fine-tuning bit for bit (with the
    #: same dropout and optimiser). None: the method has no strength 0 (a fitted head, a merge).
    off: ClassVar[dict[str, Any] | None] = {}
    #: Encoder families on which the method raises a ModelError that says why.
    refused_architectures: ClassVar[tuple[str, ...]] = ()
    #: Whether the loss of a batch does not depend on how far it is padded.
    padding_invariant: ClassVar[bool] = True
    #: Whether two inputs may go through the encoder as two rows (``model.pairs: separately``);
    #: otherwise the reason why not.
    pairs_separately: ClassVar[Literal[True] | str] = True
    #: Largest difference of logits between the trained model and its export (a merge of LoRA rounds).
    export_tolerance: ClassVar[float] = 1e-6
    #: Place among the regularisers that edit the model, and among hooks at one forward site; two that
    #: edit the same thing at the same place are refused. Views of the input (TDT) come before noise.
    edit_order: ClassVar[int] = 0
    #: What a phase before the last one hands over as its weights: the trained tensors behind a
    #: weight view, or what a forward pass sees (the view folded in).
    hands_over: ClassVar[Literal["folded", "trained"]] = "folded"

    # ------------------------------------------------------------------ asked before training

    @classmethod
    def active(cls, options: Any) -> bool:
        """False when the strength is 0: the phase is then plain fine-tuning, bit for bit."""
        return True

    @classmethod
    def variant(cls, options: Any) -> Variant | None:
        """Which side is followed where paper and released code disagree."""
        return None

    @classmethod
    def needs(cls, options: Any) -> Mapping[str, Need]:
        """Earlier phases (by the name that the options give) whose state or weights are taken."""
        return {}

    @classmethod
    def anchors(cls, options: Any) -> frozenset[Anchor]:
        """Untouched weights that the method pulls toward; see ``Trainee.anchor``."""
        return frozenset()

    @classmethod
    def edits(cls, options: Any) -> frozenset[Literal["weights", "structure"]]:
        """What is changed before training: starting weights, or modules and views of weights."""
        return frozenset()

    @classmethod
    def dropout(cls, options: Any) -> DropoutWish:
        return DropoutWish()

    @classmethod
    def program(cls, options: Any) -> tuple[str, ...] | None:
        """Names of the passes when this regulariser owns the step program of its phase."""
        return None

    @classmethod
    def adds_terms(cls, options: Any) -> bool:
        """Whether :meth:`terms` adds to the loss of the plain pass; such regularisers compose."""
        return False

    @classmethod
    def added_passes(cls, options: Any) -> tuple[str, ...]:
        """Names of the passes that :meth:`terms` runs beside the plain one, which is called ``main``."""
        return ()

    @classmethod
    def acts_in(cls, options: Any) -> tuple[str, ...] | None:
        """The passes of the phase that it is restricted to; None: all of them."""
        return None

    @classmethod
    def random_passes(cls, options: Any) -> bool:
        """Whether two passes over one batch differ by it (noise, random weights), dropout aside."""
        return False

    @classmethod
    def needs_hidden(cls, options: Any) -> bool:
        """Whether :meth:`terms` reads the last hidden states of the plain pass."""
        return False

    @classmethod
    def optimizer(cls, options: Any) -> str | None:
        """Name of the optimiser this regulariser is defined on or brings, if it owns the update."""
        return None

    @classmethod
    def owns_weights(cls, options: Any) -> bool:
        """Whether the tensors used in the forward pass are a function of the trained ones."""
        return False

    @classmethod
    def validation_share(cls, options: Any) -> bool:
        """Whether the phase must set rows aside (``data.split`` below 1)."""
        return False

    @classmethod
    def freezes_encoder(cls, options: Any) -> bool:
        """Whether no tensor of the encoder is trained in this phase (a probe, a head that is fitted)."""
        return False

    @classmethod
    def trains_encoder(cls, options: Any) -> bool:
        """Whether its ingredient is in trained weights of the encoder, so that a frozen one leaves it nothing to do.

        Refused beside a regulariser that :meth:`freezes_encoder`. By default what edits or views weights, pulls
        toward untouched ones or owns the update.
        """
        edited = "weights" in cls.edits(options)
        return edited or cls.owns_weights(options) or bool(cls.anchors(options)) or cls.optimizer(options) is not None

    @classmethod
    def reads_positions(cls, options: Any) -> bool:
        """Whether it reads or changes hidden states at the positions of the batch's tokens.

        Refused beside a regulariser that :meth:`moves_tokens`. By default one with passes of its own, or one
        whose terms read hidden states.
        """
        return bool(cls.program(options)) or cls.needs_hidden(options)

    @classmethod
    def moves_tokens(cls, options: Any) -> bool:
        """Whether hidden states have positions before those of the batch's tokens (virtual tokens)."""
        return False

    @classmethod
    def smallest_effect(cls, options: Any) -> float | None:
        """Smallest change of unit-scale activations that the method relies on."""
        return None

    @classmethod
    def recordable(cls, options: Any) -> bool:
        """Whether the pass with this regulariser in it is a function of weights and batch but for dropout.

        Such a pass can be recorded as a CUDA graph and replayed (``execution.cuda_graphs``). Not so where a
        method draws inside the pass from a generator of its own, or keeps what it has seen there.
        """
        return False

    @classmethod
    def refused_precisions(cls, options: Any) -> dict[str, str]:
        """Precisions that the method cannot run in at all, each with the reason."""
        return {}

    @classmethod
    def check_task(cls, options: Any, task: TaskConfig) -> list[str]:
        """Reasons why these options cannot act on this task; empty when they can."""
        return []

    @classmethod
    def check_options(cls, options: Any, phase: Phase) -> list[str]:
        """Options that contradict each other or the phase they are in; empty when they agree."""
        return []

    @classmethod
    def total_steps(cls, options: Any, phase: Phase, rows: int) -> int | None:
        """Optimiser steps over ``rows`` training rows where the method defines them in a way of its own."""
        return None

    @classmethod
    def cost(cls, options: Any) -> Cost:
        """Passes per optimiser step."""
        return Cost()

    @classmethod
    def fit_cost(cls, options: Any) -> Cost:
        """Passes over the encoder per training row in :meth:`fit`; what needs none (counts, a solver) costs none."""
        return Cost(0, 0)

    @classmethod
    def degraded(cls, options: Any, task: TaskConfig) -> list[str]:
        """Marks to put on the result (a named substitute on regression, a head trained by us)."""
        return []

    @classmethod
    def keeps_for_inference(cls, options: Any) -> bool:
        """Whether a plain model cannot hold what was learned, so that :meth:`rebuild` is needed."""
        return False

    @classmethod
    def owns_prediction(cls, options: Any) -> bool:
        """Whether :meth:`predict` answers in place of the model (a bag of words, a similarity)."""
        return False

    @classmethod
    def reads_encoder(cls, options: Any) -> bool:
        """Whether the answers depend on the encoder: not those of a bag of words, or a constant."""
        return True

    # ------------------------------------------------------- asked of a finished run, by evaluations

    @classmethod
    def token_confidence(cls, options: Any, kept: Mapping[str, Tensor], embedding: Tensor) -> Tensor | None:
        """Confidence ``[B, n]`` of each position of embedding outputs ``[B, n, H]``, where the method learned one.

        Args:
            kept: what :meth:`keep` returned, on the device of ``embedding``.
        """
        return None

    @classmethod
    def input_views(
        cls, options: Any, kept: Mapping[str, Tensor], embedding: Tensor, mask: Tensor, untouched: Tensor
    ) -> Mapping[str, Tensor] | None:
        """Other views of an input that the method contrasts with it: name -> embedding outputs ``[B, n, H]``.

        Args:
            kept: what :meth:`keep` returned, on the device of ``embedding``.
            mask: ``[B, n]``, 1 on real tokens.
            untouched: ``[B, n]``, True on padding and where a task's keyword segment stays as it is.
        """
        return None

    def __init__(self, options: Any, setting: Setting) -> None:
        self.options = options
        self.setting = setting
        self.diagnostics = Diagnostics()

    # ------------------------------------------------------------------------ before the loop

    def skip(self, trainee: Trainee) -> str | None:
        """Why the phase has nothing to do for this encoder (a head that is there); None: it has."""
        return None

    def edit_weights(self, trainee: Trainee) -> None:
        """Change the starting weights, once (Re-init, NoisyTune)."""

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        """Change the model once, before the optimiser exists.

        Freeze weights (``requires_grad_(False)``), attach modules (:meth:`Trainee.attach`), register
        forward sites (``trainee.hooks``) and parametrisations. ``handed`` holds the phases named in
        :meth:`needs`.
        """

    def fit(self, trainee: Trainee, data: FitData) -> None:
        """Learn something from the phase's rows without steps (a closed-form head, a Fisher matrix)."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """Parameters that get settings of their own; they leave the shared group."""
        return []

    def learning_rate_factors(self) -> Mapping[str, float]:
        """Factors of the learning rate by parameter name; factors of several regularisers multiply."""
        return {}

    def build_optimizer(self, groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer | None:
        """An update rule of the method's own over ``groups`` (each with ``names`` and ``base_lr``).

        Only asked of the regulariser that names the optimiser; None takes the shared one of that name.
        """
        return None

    # ------------------------------------------------------------------------------- the step

    def marks(self) -> list[str]:
        """Marks for the result that only the prepared model shows (a head that had to be trained)."""
        return []

    def backward(self, step: Step) -> Tensor:
        """Run the step program of one batch: passes, loss terms, ``step.backward``.

        Only called on the owner of the program. Returns the detached loss to log.
        """
        raise NotImplementedError(f"{self.name} does not own the step program")

    def terms(self, step: Step, main: MainPass) -> Tensor | None:
        """What is added to the loss of the plain pass: a scalar with its weight; None adds nothing.

        May run further passes (``step.forward`` with a draw of its own) and take gradients
        (``step.gradients``).
        """
        return None

    def before_clip(self, step: Step) -> None:
        """See or change ``.grad`` of the summed, unscaled gradient before clipping."""

    def after_clip(self, step: Step) -> None:
        """See or change ``.grad`` after clipping, before the optimiser."""

    def after_update(self, step: Step) -> None:
        """Change raw parameters after the optimiser's step (multipliers, pulls, noise)."""

    def state(self) -> dict[str, Tensor]:
        """Tensors to put into checkpoints, beyond the model and the optimiser."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore :meth:`state`."""

    # ------------------------------------------------------------------------- after the loop

    def finish(self, trainee: Trainee) -> None:
        """Replace the trained weights once after the last step (an average, an interpolation).

        Called by the loop in ``edit_order``; not in a phase without steps.
        """

    def hand(self, trainee: Trainee) -> dict[str, Tensor]:
        """State for later phases; averaged entry by entry over the members of a repeated phase."""
        return {}

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """Tensors that evaluation or figures need and that a plain model cannot hold."""
        return {}

    def export(self, trainee: Trainee) -> None:
        """Fold weight views and undo what plain inference must not have."""

    def rebuild(self, trainee: Trainee, kept: Mapping[str, Tensor]) -> None:
        """Put what was kept into a plain model, for evaluation (prefixes, prompts)."""

    def predict(
        self, trainee: Trainee | None, kept: Mapping[str, Tensor], examples: Sequence[Example]
    ) -> npt.NDArray[np.float32]:
        """Answers ``[n, K]`` of raw examples: logits (log-probabilities will do), or values ``[n, 1]``.

        Only called on the owner of the prediction (:meth:`owns_prediction`), in evaluation.

        Args:
            trainee: the plain model with the run's weights; None where :meth:`reads_encoder` is False.
            kept: what :meth:`keep` returned; all that was fitted, as plain arrays (see ``hooks.plain``).
        """
        raise NotImplementedError(f"{self.name} does not own the prediction")


Regularisers = Sequence[tuple[type[Regulariser], Any]]

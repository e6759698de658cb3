"""The hooks that a method implements; ``training.stack`` calls them in the order of a step.

A method (a YAML file) is one phase or several; a phase lists regularisers, and a regulariser is
one class in ``regft_core/methods/``. It says once what it does, in :meth:`Regulariser.declare`, and
implements only the hooks it needs; everything else stays that of plain fine-tuning::

    class LabelSmoothing(Regulariser):
        name = "label_smoothing"
        Config = LabelSmoothingConfig
        off = {"smoothing": 0.0}

        @classmethod
        def declare(cls, options: LabelSmoothingConfig) -> Declares:
            return Declares(active=options.smoothing > 0)

        def task_loss(self, step: Step, logits: Tensor, labels: Tensor) -> Tensor: ...

Order within a phase: the model is loaded and the weights of its start are put in; ``edit_weights``
(Re-init, NoisyTune), then ``prepare`` (modules, views, sites), each in ``edit_order``; ``fit`` once;
the loop, with ``finish`` after its last step; ``hand`` (what later phases need), ``keep`` (what
evaluation and figures need), ``export`` in the reverse order of ``prepare``. Labels and logits of a regression are
those of targets with mean 0 and deviation 1, in every hook but ``predict``; what is stored is in the targets' unit.

Order within an optimiser step. It follows from what a hook does, never from the names of regularisers:

0. The batch: ``change_batch``, which every pass of the step sees.
1. Passes and backwards: the owner's ``backward``, or the plain pass with the ``terms`` of all.
   ``task_loss`` replaces the task's own loss in every pass. Each ``penalty`` is added once.
2. The gradient, summed and unscaled: ``observe_gradients``, ``change_gradients``, ``gradient_masks``.
3. Clipping: ``clip_gradients``, then the shared one.
4. ``observe_gradients``, then ``gradient_masks``, of those with ``Declares.gradients_at = "after_clip"``.
   They still observe the gradient before any change or mask (:meth:`Step.gradient`).
5. ``before_update``, then the optimiser.
6. The weights: ``pull_weights``, ``perturb_weights``, ``observe_weights``.

Hooks of one kind commute: penalties add up, masks multiply, observers only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from regft_core.hooks.declare import (
    Batch,
    Declares,
    Diagnostics,
    DropoutWish,
    Example,
    FitData,
    Handed,
    MainPass,
    ParameterGroup,
    Setting,
    Step,
    Tensor,
    Trainee,
)
from regft_core.hooks.description import Cost, Description, Flip, Variant
from regft_core.lazy import Array
from regft_core.schema import StrictModel
from regft_core.schema.method import Phase
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import TrainingConfig

if TYPE_CHECKING:
    import torch

    from regft_core.kinds._decision import Decision

__all__ = ["Cost", "Declares", "Description", "Diagnostics", "DropoutWish", "Flip", "Handed", "MainPass", "Phase"]
__all__ += ["ParameterGroup", "Setting", "StrictModel", "TaskConfig", "TrainingConfig", "Variant"]


def implements(cls: type[Regulariser], hook: str) -> bool:
    """Whether a class has a hook of its own, rather than that of plain fine-tuning."""
    return getattr(cls, hook) is not getattr(Regulariser, hook)


class NoOptions(StrictModel):
    """Options of a regulariser that has none."""


class Regulariser:
    """Base of all regularisers; the defaults are those of plain fine-tuning.

    The three class methods are asked before any model exists (validation, dry run, cost); they must
    not import torch. Instance methods run inside training and read ``options``, ``setting``,
    ``declares``, what :meth:`declare` returned for the options, and ``trainee``.
    """

    #: The model that is trained; there from :meth:`edit_weights` on.
    trainee: Trainee

    #: Name in YAML; also the prefix of the regulariser's random streams.
    name: ClassVar[str] = ""
    Config: ClassVar[type[StrictModel]] = NoOptions
    #: Options of strength 0, under which training equals plain fine-tuning bit for bit (with the
    #: same dropout and optimiser). None: the method has no strength 0 (a fitted head, a merge).
    off: ClassVar[dict[str, Any] | None] = {}
    #: Controls by the end of their name: the control ``random`` of the arm ``dps_mix`` is ``dps_mix_random``.
    controls: ClassVar[Mapping[str, Flip]] = {}
    #: Option -> where its default is from: ``paper: section or table``, ``code: owner/repository file:line`` or
    #: ``ours: reason``.
    sources: ClassVar[Mapping[str, str]] = {}

    #: Whether ``terms`` adds to the loss of the plain pass; such regularisers compose.
    adds_terms: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.adds_terms = implements(cls, "terms")

    @classmethod
    def declare(cls, options: Any) -> Declares:
        """Return what the method does under these options; a field that is left out is that of plain fine-tuning."""
        return Declares()

    @classmethod
    def check_options(cls, options: Any, phase: Phase) -> list[str]:
        """Options that contradict each other or the phase they are in; empty when they agree."""
        return []

    @classmethod
    def check_task(cls, options: Any, task: TaskConfig) -> list[str]:
        """Reasons why these options cannot act on this task; empty when they can."""
        return []

    def __init__(self, options: Any, setting: Setting) -> None:
        self.options = options
        self.setting = setting
        self.declares = self.declare(options)
        self.diagnostics = Diagnostics(self.name)
        #: Marks for the result that only the prepared model shows (a head that had to be trained).
        self.marks: list[str] = []

    # ------------------------------------------------------------------------ before the loop

    def skip(self, trainee: Trainee) -> str | None:
        """Why the phase has nothing to do for this encoder (a head that is there); None: it has."""
        return None

    def edit_weights(self, trainee: Trainee) -> None:
        """Change the starting weights, once (Re-init, NoisyTune). Raises as :meth:`prepare`: ModelError."""

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        """Change the model once, before the optimiser exists.

        Freeze weights (``requires_grad_(False)``), attach modules (:meth:`Trainee.attach`), register
        forward sites (``trainee.hooks``) and parametrisations. ``handed`` holds the phases named in
        ``Declares.needs``.

        Raises ModelError where the encoder lacks what the method needs.
        """

    def fit(self, trainee: Trainee, data: FitData) -> None:
        """Learn something from the phase's rows without steps (a closed-form head, a Fisher matrix).

        Raises RunFailed where the rows lead to no result.
        """

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

    def total_steps(self, rows: int) -> int | None:
        """Optimiser steps over ``rows`` training rows where the method defines them in a way of its own."""
        return None

    # ------------------------------------------------------------------------------- the step

    def change_batch(self, step: Step) -> Batch:
        """Another batch of the same examples instead of ``step.batch``, for all passes of the step.

        One regulariser of a phase may implement it.
        """
        return step.batch

    def backward(self, step: Step) -> Tensor:
        """Run the step program of one batch: passes, loss terms, ``step.backward``.

        Only called on the owner of the program. Returns the detached loss to log.
        """
        raise NotImplementedError(f"{self.name} does not own the step program")

    def terms(self, step: Step, main: MainPass) -> Tensor | None:
        """Return what is added to the loss of the plain pass: a scalar with its weight; None adds nothing.

        May run further passes (``step.forward`` with a draw of its own) and take gradients
        (``step.gradients``).
        """
        return None

    def task_loss(self, step: Step, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of ``logits [B, K]`` in place of the task's own, in every pass that has one (label smoothing).

        One regulariser of a phase may implement it. Passes of one step share its random draws
        (``step.generator`` without a further key).
        """
        raise NotImplementedError(f"{self.name} does not transform the task's loss")

    def penalty(self, step: Step) -> Tensor | None:
        """A scalar of the weights alone, with its weight, added to the loss of every step (L2-SP); None adds nothing.

        It reads no pass, so it works with any step program. Accumulated batches count it once in sum.
        """
        return None

    def observe_gradients(self, step: Step) -> None:
        """Read ``step.gradient(name)``: the summed, unscaled gradient before any change or mask.

        Clipped or not, as ``Declares.gradients_at`` says.
        """

    def change_gradients(self, step: Step) -> None:
        """Change ``.grad`` in a way that is no mask (noise), before masks and clipping; one regulariser of a phase."""

    def gradient_masks(self, step: Step) -> Iterable[tuple[str, Tensor | float]]:
        """(name, factor) of gradients to multiply, entry by entry; masks of several regularisers multiply.

        Names are those of ``Trainee.named_trainable``. An entry with factor 0 gets no noise in this step either
        (``perturb_weights``). ``Declares.gradients_at`` says whether the clip norm is that of the masked gradient.
        """
        return ()

    def clip_gradients(self, step: Step) -> Tensor | None:
        """A factor of all gradients before the shared clipping: that of a clip norm of the method's own."""
        return None

    def before_update(self, step: Step) -> None:
        """Read the weights before the optimiser's step, or tell an optimiser of one's own about the step."""

    def pull_weights(self, step: Step) -> None:
        """Move raw parameters after the optimiser's step: decoupled pulls, projections."""

    def perturb_weights(self, step: Step) -> None:
        """Add noise to raw parameters after every pull, but not where ``step.movable(name)`` is False."""

    def observe_weights(self, step: Step) -> None:
        """Read the weights as the step leaves them (averages)."""

    def state(self) -> dict[str, Tensor]:
        """Tensors to put into checkpoints, beyond the model and the optimiser."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore :meth:`state`, from copies on the training device."""

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

    def decision(self) -> Decision | None:
        """How answers become decisions, fitted to ``setting.metric``; None: the most probable label."""
        return None

    def export(self, trainee: Trainee) -> None:
        """Fold weight views and undo what plain inference must not have."""

    def rebuild(self, trainee: Trainee, kept: Mapping[str, Tensor]) -> None:
        """Put what was kept into a plain model, for evaluation (prefixes, prompts)."""

    def predict(self, trainee: Trainee | None, kept: Mapping[str, Tensor], examples: Sequence[Example]) -> Array:
        """Answers ``[n, K]``, fp32, of raw examples: logits (log-probabilities will do), or values ``[n, 1]``.

        Only called in evaluation, on the one regulariser of the last phase that implements it. It freezes the model.

        Args:
            trainee: the plain model with the run's weights; None where ``Declares.reads`` is not the encoder.
            kept: what :meth:`keep` returned; all that was fitted, as plain arrays (see ``hooks.declare.from_tensor``).
        """
        raise NotImplementedError(f"{self.name} does not own the prediction")

    # ------------------------------------------------------- asked of a finished run, by evaluations

    def token_confidence(self, kept: Mapping[str, Tensor], embedding: Tensor) -> Tensor | None:
        """Confidence ``[B, n]`` of each position of embedding outputs ``[B, n, H]``, where the method learned one.

        ``kept`` is what :meth:`keep` returned, on the device of ``embedding``.
        """
        return None

    def input_views(
        self, kept: Mapping[str, Tensor], embedding: Tensor, mask: Tensor, untouched: Tensor
    ) -> Mapping[str, Tensor] | None:
        """Other views of an input that the method contrasts with it: name -> embedding outputs ``[B, n, H]``.

        Args:
            kept: what :meth:`keep` returned, on the device of ``embedding``.
            mask: ``[B, n]``, 1 on real tokens.
            untouched: ``[B, n]``, True on padding and where a task's keyword segment stays as it is.
        """
        return None

"""The hooks that a method implements, and what the training loop gives it.

A method (a YAML file) is a list of regularisers; a regulariser is one class here. It
implements only the hooks it needs; everything else stays that of plain fine-tuning. The hooks
follow the eight extension points of the design: plan (search runs), model setup, weight view,
forward sites, step program, gradient transform, update rule, export.

Order inside one optimiser step: passes and backwards, unscale, ``before_clip``, clip,
``after_clip``, the optimiser, ``after_update``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regft_core.config.schema import StrictModel, TaskConfig, TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regft_core.training.step import Step
    from regft_core.training.trainee import Trainee

Variant = Literal["paper", "released"]


class NoOptions(StrictModel):
    """Options of a regulariser that has none."""


@dataclass(frozen=True)
class DropoutWish:
    """What a regulariser needs of dropout: a probability, at least some randomness, or nothing.

    ``hidden`` and ``attention`` are a probability to set, ``"on"`` (must not be 0) or None
    (indifferent).
    """

    hidden: float | Literal["on"] | None = None
    attention: float | Literal["on"] | None = None


@dataclass(frozen=True)
class Cost:
    """Passes over the encoder per optimiser step and batch, as declared by the method.

    Passes that run as one larger batch count one by one (three views in one forward are
    ``forward=3``). ``ratio`` is the declared training cost relative to plain fine-tuning,
    with a forward counted 1 and a backward 2.
    """

    forward: float = 1.0
    backward: float = 1.0

    @property
    def ratio(self) -> float:
        return (self.forward + 2 * self.backward) / 3


@dataclass(frozen=True)
class Setting:
    """What is known of a run before its model is built.

    Attributes:
        kind: ``classification`` or ``regression``.
        num_labels: outputs of the head (1 for regression).
        seed: the run's seed; all streams derive from it.
        training: the protocol with the method's overrides and the negotiated dropout.
        keyword_segment: segment that token-level perturbations leave untouched, or None.
        phase: ``finetune`` or the name of a search run (``search-0``).
    """

    kind: str
    num_labels: int
    seed: int
    training: TrainingConfig
    keyword_segment: str | None = None
    phase: str = "finetune"


@dataclass(frozen=True)
class SearchRun:
    """One training run of the search phase.

    Attributes:
        name: phase name, unique within the method (``search-0``).
        index: 0-based position.
        train_rows, validation_rows: row numbers of the subsample; validation may be empty.
        training: the protocol of this run.
    """

    name: str
    index: int
    train_rows: tuple[int, ...]
    validation_rows: tuple[int, ...]
    training: TrainingConfig


@dataclass
class ParameterGroup:
    """Parameters of a regulariser that need settings other than the shared ones."""

    parameters: dict[str, nn.Parameter]
    learning_rate: float | None = None
    weight_decay: float | None = None


@dataclass
class Diagnostics:
    """Numbers that methods log; ``values`` holds (name, step, value)."""

    values: list[tuple[str, int, float]] = field(default_factory=list)

    def log(self, name: str, step: int, value: float) -> None:
        self.values.append((name, step, float(value)))


class Regulariser:
    """Base of all regularisers; the defaults are those of plain fine-tuning.

    Class methods answer questions before any model exists (validation, dry run, cost); they
    must not import torch. Instance methods run inside training.
    """

    #: Name in YAML; also the prefix of the regulariser's random streams.
    name: ClassVar[str] = ""
    Config: ClassVar[type[StrictModel]] = NoOptions
    SearchConfig: ClassVar[type[StrictModel] | None] = None
    #: Options of strength 0, under which training equals plain fine-tuning bit for bit (with the
    #: same dropout and optimiser); every method has some, and the contract tests use them.
    off: ClassVar[dict[str, Any]] = {}
    #: Encoder families on which the method raises a ModelError that says why.
    refused_architectures: ClassVar[tuple[str, ...]] = ()
    #: Whether the loss of a batch does not depend on how far it is padded.
    padding_invariant: ClassVar[bool] = True
    #: Hooks at one forward site run in this order; views of the input (TDT) come before noise.
    forward_order: ClassVar[int] = 0

    # ------------------------------------------------------------------ asked before training

    @classmethod
    def active(cls, options: Any) -> bool:
        """False when the strength is 0: the run is then plain fine-tuning, bit for bit."""
        return True

    @classmethod
    def variant(cls, options: Any) -> Variant | None:
        """Which side is followed where paper and released code disagree."""
        return None

    @classmethod
    def search_phase(cls, options: Any) -> bool:
        """Whether these options need a search phase before fine-tuning."""
        return False

    @classmethod
    def dropout(cls, options: Any) -> DropoutWish:
        return DropoutWish()

    @classmethod
    def program(cls, options: Any, phase: str) -> tuple[str, ...] | None:
        """Names of the passes when this regulariser owns the step program of ``phase``."""
        return None

    @classmethod
    def optimizer(cls, options: Any) -> str | None:
        """Name of the optimiser this regulariser is defined on, if it owns the update."""
        return None

    @classmethod
    def owns_weights(cls, options: Any) -> bool:
        """Whether the tensors used in the forward pass are a function of the trained ones."""
        return False

    @classmethod
    def smallest_effect(cls, options: Any) -> float | None:
        """Smallest change of unit-scale activations that the method relies on."""
        return None

    @classmethod
    def refused_precisions(cls, options: Any) -> dict[str, str]:
        """Precisions that the method cannot run in at all, each with the reason."""
        return {}

    @classmethod
    def check_task(cls, options: Any, task: TaskConfig) -> list[str]:
        """Reasons why these options cannot act on this task; empty when they can."""
        return []

    @classmethod
    def check_options(cls, options: Any, search: Any) -> list[str]:
        """Options that contradict each other or the search section; empty when they agree."""
        return []

    @classmethod
    def cost(cls, options: Any) -> Cost:
        """Passes per optimiser step of the fine-tuning phase."""
        return Cost()

    @classmethod
    def search_cost(cls, options: Any, search: Any) -> Cost:
        """Passes per step of one search run."""
        return Cost()

    @classmethod
    def search_epochs(cls, options: Any, search: Any) -> float:
        """Epochs over the training set that the whole search phase takes, for the dry run."""
        return 0.0

    @classmethod
    def degraded(cls, options: Any, task: TaskConfig) -> list[str]:
        """Marks to put on the result (a named substitute on regression, a head trained by us)."""
        return []

    def __init__(self, options: Any, search: Any, setting: Setting) -> None:
        self.options = options
        self.search = search
        self.setting = setting
        self.diagnostics = Diagnostics()

    # --------------------------------------------------------------------- plan: search phase

    def search_runs(self, rows: int) -> list[SearchRun]:
        """The runs of the search phase over a subsample of ``rows`` examples."""
        return []

    def search_result(self, trainee: Trainee) -> dict[str, Tensor]:
        """Tensors that one finished search run hands to :meth:`combine`."""
        return {}

    def combine(self, results: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Merge the results of all search runs into the state that fine-tuning starts from."""
        return results[-1] if results else {}

    # ------------------------------------------------------------------------------- training

    def prepare(self, trainee: Trainee, handed: dict[str, Tensor] | None) -> None:
        """Edit the model once, before the optimiser exists.

        Change or freeze weights, attach modules (:meth:`Trainee.attach`), register forward
        sites (``trainee.hooks``) and parametrisations. ``handed`` is the state from the search
        phase, in the fine-tuning phase of a method that has one.
        """

    def parameter_groups(self) -> list[ParameterGroup]:
        """Parameters that get settings of their own; they leave the shared group."""
        return []

    def frozen(self) -> tuple[str, ...]:
        """Names of parameters that the optimiser must not get."""
        return ()

    def backward(self, step: Step) -> Tensor:
        """Run the step program of one batch: passes, loss terms, ``step.backward``.

        Only called on the owner of the program. Returns the detached loss to log.
        """
        raise NotImplementedError(f"{self.name} does not own the step program")

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

    def export(self, trainee: Trainee) -> None:
        """Fold weight views and undo what plain inference must not have."""

"""Plain values that hooks return or are given; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from regft_core.config.method import Cost
from regft_core.config.schema.training import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "Anchor",
    "Cost",
    "Diagnostics",
    "DropoutWish",
    "Handed",
    "MainPass",
    "Need",
    "ParameterGroup",
    "Setting",
    "Variant",
]

Variant = Literal["paper", "released"]
#: What a later phase takes from an earlier one: its method state, or its weights as well.
Need = Literal["state", "weights"]
#: ``checkpoint``: as loaded, before any phase; ``start``: as the phase finds them, before its own edits.
Anchor = Literal["checkpoint", "start"]


@dataclass(frozen=True)
class Setting:
    """What is known of a phase of a run before its model is built.

    Attributes:
        kind: ``classification`` or ``regression``.
        num_labels: outputs of the head (1 for regression).
        seed: the run's seed; all streams derive from it.
        training: the protocol with the phase's overrides and the negotiated dropout.
        phase: name of the phase.
        final: whether it is the last phase, whose weights are the result.
        keyword_segment: segment that token-level perturbations leave untouched, or None.
        max_length: tokens at which inputs are truncated; None where nothing reads raw text.
        value_range: smallest and largest value of the task (regression), or None.
    """

    kind: str
    num_labels: int
    seed: int
    training: TrainingConfig
    phase: str = "finetune"
    final: bool = True
    keyword_segment: str | None = None
    max_length: int | None = None
    value_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class DropoutWish:
    """What a regulariser needs of dropout: a probability, at least some randomness, or nothing.

    ``hidden`` and ``attention`` are a probability to set, ``"on"`` (must not be 0) or None
    (indifferent). With ``either``, two passes must differ: one of the two is not 0, or another
    regulariser makes passes random (``Regulariser.random_passes``).
    """

    hidden: float | Literal["on"] | None = None
    attention: float | Literal["on"] | None = None
    either: bool = False


@dataclass
class ParameterGroup:
    """Parameters of a regulariser that need settings other than the shared ones."""

    parameters: dict[str, nn.Parameter]
    learning_rate: float | None = None
    weight_decay: float | None = None


@dataclass(frozen=True)
class Handed:
    """What an earlier phase left: its key, its method state and, where they are needed, its weights.

    The names in ``state`` are those that the phase's regularisers gave in ``hand``, with their
    regulariser's name in front: ``fisher.mask/bert.encoder...``.
    """

    key: str
    state: dict[str, Tensor]
    weights: dict[str, Tensor] = field(default_factory=dict)

    def of(self, regulariser: str) -> dict[str, Tensor]:
        """The state that ``regulariser`` handed over in that phase, under its own names."""
        prefix = f"{regulariser}."
        return {name.removeprefix(prefix): value for name, value in self.state.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class MainPass:
    """The plain forward pass of a step, for loss terms that are added to its loss.

    Attributes:
        logits: ``[B, K]``, fp32.
        hidden: last hidden states ``[B, n, H]``, where a regulariser asked for them; else None.
        loss: the task's loss, a scalar.
    """

    logits: Tensor
    hidden: Tensor | None
    loss: Tensor


@dataclass
class Diagnostics:
    """Numbers that methods log; ``values`` holds (name, step, value)."""

    values: list[tuple[str, int, float]] = field(default_factory=list)

    def log(self, name: str, step: int, value: float) -> None:
        self.values.append((name, step, float(value)))

"""Documentation of a method by itself. No training code reads it: editing it never triggers retraining."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from regft_core.schema.method import Cost

Variant = Literal["paper", "released"]


@dataclass(frozen=True)
class Flip:
    """A control of every arm that has this regulariser: the same arm with these ``options`` changed, nothing else.

    Attributes:
        why: what the control lacks or has instead, in a few words.
        when: whether a regulariser with these options has the ingredient; without it there is no such control.
    """

    options: Mapping[str, Any]
    why: str
    when: Callable[[Any], bool] = field(default=lambda options: True, compare=False)


@dataclass(frozen=True)
class Description:
    """Description of a method: shown, checked or measured. It changes no score, and editing it triggers no retraining.

    Attributes:
        variant: which side is followed where paper and released code disagree; None: as the option ``variant`` says.
        cost: passes per optimiser step.
        fit_cost: passes over the encoder per training row in ``fit``; a solver or a count needs none.
        degraded: kind of task -> mark that results on it carry (a substitute for a loss the paper does not define).
        smallest_effect: smallest change of unit-scale activations that the method relies on.
        refused: where the method does not run -> why: in a precision (``fp16``), ``mask``: on a model that answers at a
            mask (``model.pooling``), ``separately``: with two inputs as two rows (``model.pairs``), ``windows``: with
            several rows of one text (``model.windows``).
        refused_architectures: encoder families on which it does not run.
        exempt: law of the contract that the method does not keep -> why: ``limit``, hardly any strength is hardly any
            change; ``padding``, the loss of a batch does not depend on how far it is padded.
    """

    variant: Variant | None = None
    cost: Cost = field(default=Cost())
    fit_cost: Cost = field(default=Cost(0, 0))
    degraded: Mapping[str, str] = field(default_factory=dict)
    smallest_effect: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_architectures: tuple[str, ...] = ()
    exempt: Mapping[Literal["limit", "padding"], str] = field(default_factory=dict)

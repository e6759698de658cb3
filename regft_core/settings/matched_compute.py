"""Cost of a method in units of plain fine-tuning: the factor of ``steps_factor: {match: method}``."""

from __future__ import annotations

from regft_core.schema.method import Method, Phase, Registry
from regft_core.schema.training import TrainingConfig


def method_factor(method: Method, training: TrainingConfig, registry: Registry) -> float:
    """Compute of ``method`` in units of plain fine-tuning under the shared protocol ``training``.

    Counted in epochs: every phase costs epochs x share of the rows x members x passes of a step; what it fits
    without steps goes over the same rows, and costs its passes in place of epochs x passes of a step, as do the answers
    of an earlier phase that it learns. Where that
    protocol counts steps (``max_steps``) a phase costs its own number over the protocol's, whatever share of the
    rows they are drawn from, in batches of the protocol's size.

    Raises ValueError where the two cannot be compared (:func:`incomparable`).
    """
    if reason := incomparable(method, training, registry):
        raise ValueError(f"{method.name}: {reason}")
    total = 0.0
    for phase in method.phases:
        fit = phase.fit_ratio(registry) + len(phase.teachers(registry)) / 3
        fitted = fit / training.epochs * phase.data.split
        total += (_length(phase, training) * phase.ratio(registry) + fitted) * phase.members
    return total


def _length(phase: Phase, training: TrainingConfig) -> float:
    """Rows that the steps of one member go over, relative to plain fine-tuning under ``training``."""
    own = phase.training
    if own.epochs == 0:  # no steps, whatever number of them the shared protocol has
        return 0.0
    if own.max_steps is None or training.max_steps is None:
        return own.epochs / training.epochs * phase.data.split
    batches = own.batch_size * own.accumulation / (training.batch_size * training.accumulation)
    return own.max_steps / training.max_steps * batches


def incomparable(method: Method, training: TrainingConfig, registry: Registry) -> str:
    """Why no one factor says what a method costs next to ``training``, for every number of rows; empty where one does.

    Passes over the rows and counted steps are worth each other at one number of rows only.
    """
    if any(phase.data.task is not None or phase.data.size is not None for phase in method.phases):
        return "its phases train on other rows than the cell's"
    if any(phase.model for phase in method.phases):
        return "a phase of it has another encoder"
    counted = training.max_steps is not None
    if counted and any(phase.fit_ratio(registry) > 0 or phase.teachers(registry) for phase in method.phases):
        return "it fits without steps, and how many steps its passes over the rows are worth differs by size"
    for phase in method.phases:
        if phase.training.epochs and (phase.training.max_steps is not None) != counted:
            own, shared = ("epochs", "steps") if counted else ("steps", "epochs")
            return f"its phase '{phase.name}' counts {own}, and how many {shared} those are differs by size"
    return ""

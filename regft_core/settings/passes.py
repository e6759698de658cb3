"""Passes of a phase and of a method, in steps of plain fine-tuning; the factor of ``steps_factor: {match: method}``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regft_core.schema.method import Method, Phase, Registry
from regft_core.schema.training import TrainingConfig

#: So many rows that no batch of them is cut short.
MANY = 7_200_000_000


def optimiser_steps(training: TrainingConfig, rows: int | None) -> int | None:
    """Optimiser steps of one run on ``rows`` examples; None when that needs an unknown ``rows``."""
    if training.epochs == 0:
        return 0
    if training.max_steps is not None:
        return training.max_steps
    if rows is None:
        return None
    return training.epochs * epoch_steps(training, rows)


def epoch_steps(training: TrainingConfig, rows: int) -> int:
    """Optimiser steps of one epoch over ``rows`` examples."""
    return math.ceil(math.ceil(rows / training.batch_size) / training.accumulation)


def phase_cost(
    phase: Phase,
    count: int | None,
    registry: Registry,
    shared: TrainingConfig,
    size: float | None = 1.0,
    teachers: Sequence[float | None] = (),
    steps: int | None = None,
) -> float | None:
    """Plain-step equivalents of all members of a phase, on ``count`` rows each; None when that needs an unknown.

    A plain step is one over a batch of the ``shared`` protocol: one of a phase with smaller batches is a part of it.

    Args:
        size: of the phase's encoder in that of the task (``Project.relative_size``); None where nothing tells it.
        teachers: sizes of the encoders whose answers it learns: each costs a forward pass over the rows.
        steps: that all members took; by default those that they will take.
    """
    own, fit = phase.training, phase.fit_ratio(registry)
    each = optimiser_steps(own, count) if steps is None else steps / phase.members
    passes = 0.0
    for factor, length in ((size, fit), *((teacher, 1 / 3) for teacher in teachers)):
        if factor is None or (length and count is None):
            return None
        passes += factor * length * epoch_steps(own, count) if count is not None else 0.0
    if each is None or size is None:
        return None
    passes += each * phase.ratio(registry) * size
    return passes * own.accumulation * phase.members * own.batch_size / shared.batch_size


def method_factor(method: Method, training: TrainingConfig, registry: Registry) -> float:
    """Return the compute of ``method`` in units of plain fine-tuning under the shared protocol ``training``.

    The two must be comparable (:func:`incomparable`).
    """
    total, plain = 0.0, (optimiser_steps(training, MANY) or 0) * training.accumulation
    for phase in method.phases:
        teachers = [1.0] * len(phase.teachers(registry))
        total += phase_cost(phase, int(MANY * phase.data.split), registry, training, 1.0, teachers) or 0.0
    return total / plain


def incomparable(method: Method, training: TrainingConfig, registry: Registry) -> str:
    """Return why no factor says for every number of rows what a method costs; empty where one does.

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

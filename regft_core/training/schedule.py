"""Learning-rate schedules as pure functions of the step, so that there is no state to save."""

from __future__ import annotations

import math


def warmup_steps(total: int, ratio: float) -> int:
    """Number of warm-up steps, rounded up as in the usual fine-tuning scripts."""
    return math.ceil(total * ratio)


def factor(schedule: str, step: int, total: int, warmup: int) -> float:
    """Multiplier of the learning rate at 0-based optimiser step ``step`` of ``total``.

    Warm-up rises linearly from 0 (the first step of a run with warm-up has rate 0); ``linear``
    then falls to 0 at ``total``, ``cosine`` follows half a cosine, ``constant`` stays at 1.
    """
    if step < warmup:
        return step / max(1, warmup)
    if schedule == "constant":
        return 1.0
    progress = (step - warmup) / max(1, total - warmup)
    if schedule == "linear":
        return max(0.0, 1.0 - progress)
    if schedule == "cosine":
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))
    raise ValueError(f"unknown schedule '{schedule}'")

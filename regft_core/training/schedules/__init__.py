"""Schedules of the learning rate; ``training.schedule`` names one of these, or a file (``catalogue.py`` finds it).

A file defines ``factor(progress)``: what the rate is multiplied by when ``progress`` of the steps after warm-up are
done, from 0 to below 1. Warm-up is the same for all (``training.optim.rate_factor``).
"""

from __future__ import annotations

import math
from types import SimpleNamespace


def constant(progress: float) -> float:
    """The rate stays as it is after warm-up."""
    return 1.0


def cosine(progress: float) -> float:
    """The rate follows half a cosine to 0."""
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))


def linear(progress: float) -> float:
    """The rate falls to 0 in proportion to the steps."""
    return max(0.0, 1.0 - progress)


SHIPPED = {rule.__name__: SimpleNamespace(factor=rule) for rule in (constant, cosine, linear)}

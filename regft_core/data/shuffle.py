"""Random order that stays the same across Python and NumPy versions."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def shuffled(items: Sequence[T], rng: Random) -> list[T]:
    """``items`` in random order (Fisher and Yates).

    Only ``Random.random()`` is used: Python promises that its sequence does not change between
    versions, and promises it neither for ``Random.shuffle`` nor NumPy for its generators.
    """
    result = list(items)
    for last in range(len(result) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        result[last], result[other] = result[other], result[last]
    return result

"""Named random streams, keyed functionally.

Every draw is a pure function of (seed, stream name, counters such as the optimiser step), so no generator state is
saved: a resumed run, another executor, or a method that is switched off cannot shift the draws of anything else. Arms
of one seed share the streams ``subsample``, ``head`` and ``order``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from random import Random
from typing import TypeVar

T = TypeVar("T")


def derive(seed: int, *names: str | int) -> int:
    """Return a 63-bit integer determined by ``seed`` and the stream's ``names``."""
    text = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def shuffled(items: Iterable[T], rng: Random) -> list[T]:
    """Return ``items`` in random order (Fisher and Yates).

    Only ``Random.random()`` is used: Python promises that its sequence does not change between
    versions, and promises it neither for ``Random.shuffle`` nor NumPy for its generators.
    """
    result = list(items)
    for last in range(len(result) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        result[last], result[other] = result[other], result[last]
    return result

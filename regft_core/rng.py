"""Named random streams: every draw is a pure function of (seed, stream name, counters), and no state is saved."""

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
    """Return ``items`` in random order (Fisher and Yates), by ``Random.random()``, whose sequence Python keeps."""
    result = list(items)
    for last in range(len(result) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        result[last], result[other] = result[other], result[last]
    return result

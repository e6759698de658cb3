"""Orders of the training rows; ``training.sampler`` names one of these, or a file (``catalogue.py`` finds it).

A file defines ``batches(lengths, labels, *, seed, epoch, batch_size, bucket_batches)``: the batches of an epoch, each a
list of positions in ``lengths`` (tokens) and ``labels`` (of the training rows; a row may occur several times or not at
all). It is a pure function of its arguments, and an epoch has as many batches as all rows fill, each of 1 to
``batch_size`` rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace

from regft_core.rng import derive, shuffled


def by_length(
    lengths: Sequence[int],
    labels: Sequence[int | float],
    *,
    seed: int,
    epoch: int,
    batch_size: int,
    bucket_batches: int,
) -> list[list[int]]:
    """Every row once an epoch, in batches of similar length: little padding, in another order in every epoch.

    Examples are shuffled and cut into pools of ``bucket_batches * batch_size``; each pool is sorted by length (ties in
    shuffled order) and cut into batches; the batches are shuffled. Every example occurs exactly once. When the sizes do
    not divide, the last pool's longest examples form a smaller batch, which is where a smaller rectangle saves most
    padding. A pool as large as the set gives similar batches every epoch; fewer ``bucket_batches`` mix more and pad
    more, and 1 is a plain shuffle.
    """
    rng = Random(derive(seed, "order", epoch))
    order = shuffled(range(len(lengths)), rng)
    if bucket_batches == 1:
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    filled: list[list[int]] = []
    pool_size = batch_size * bucket_batches
    for first in range(0, len(order), pool_size):
        pool = sorted(order[first : first + pool_size], key=lambda index: lengths[index])
        filled += [pool[start : start + batch_size] for start in range(0, len(pool), batch_size)]
    return shuffled(filled, rng)


SHIPPED = {"by_length": SimpleNamespace(batches=by_length)}

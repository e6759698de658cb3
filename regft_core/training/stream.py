"""Batches of one phase; which examples come when is a pure function of seed and epoch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regft_core.catalogue import SAMPLERS
from regft_core.data.batches import Batch, Padding, collate
from regft_core.data.encode import Encoded
from regft_core.errors import RunFailed
from regft_core.rng import derive


class BatchStream:
    """An endless sequence of batches over some rows of a tokenised set.

    Args:
        encoded: the tokenised set.
        rows: row numbers to draw from; all of them when None.
        sampler: the one of ``training.samplers`` that says the order.
        whole: leave out the smaller batch of an epoch, whose rows the next epoch may have elsewhere.
        seed, stream: determine the order together with the epoch.
    """

    def __init__(
        self,
        encoded: Encoded,
        *,
        kind: str,
        padding: Padding,
        seed: int,
        stream: str,
        batch_size: int,
        bucket_batches: int,
        device: torch.device,
        rows: Sequence[int] | None = None,
        sampler: str = "by_length",
        whole: bool = False,
    ) -> None:
        self.encoded = encoded
        self.kind = kind
        self.padding = padding
        self.batch_size = batch_size
        self.bucket_batches = bucket_batches
        self.device = device
        self.sampler = sampler
        self.rows = list(range(len(encoded))) if rows is None else list(rows)
        self.seed_value = derive(seed, "order", stream)
        lengths = encoded.lengths
        self.lengths = [lengths[row] for row in self.rows]
        self.least = batch_size if whole and len(self.rows) >= batch_size else 1
        self.batches_per_epoch = len(self.rows) // batch_size if self.least > 1 else -(-len(self.rows) // batch_size)
        self._epoch: tuple[int, list[list[int]]] | None = None

    def order(self, epoch: int) -> list[list[int]]:
        """Row numbers of every batch of ``epoch``."""
        if self._epoch is None or self._epoch[0] != epoch:
            batches = SAMPLERS.load(self.sampler).batches(
                self.lengths,
                [self.encoded.labels[row] for row in self.rows],
                seed=self.seed_value,
                epoch=epoch,
                batch_size=self.batch_size,
                bucket_batches=self.bucket_batches,
            )
            count = -(-len(self.rows) // self.batch_size)
            if len(batches) != count or any(not 1 <= len(batch) <= self.batch_size for batch in batches):
                wrong = f"gives {len(batches)} batches; an epoch has {count}, each of 1 to {self.batch_size} rows"
                raise RunFailed("bad-sampler", f"{SAMPLERS.path(self.sampler)}: {wrong}")
            self._epoch = (epoch, [[self.rows[i] for i in batch] for batch in batches if len(batch) >= self.least])
        return self._epoch[1]

    def collate(self, rows: Sequence[int]) -> Batch:
        """These rows as a padded batch on the device."""
        batch = collate(self.encoded, list(rows), self.padding, self.kind)
        return batch.to(self.device)

    def batch(self, number: int) -> Batch:
        """Batch ``number`` of the endless sequence; epochs follow each other, re-shuffled."""
        epoch, position = divmod(number, self.batches_per_epoch)
        return self.collate(self.order(epoch)[position])

    def steps(self, epoch: int, accumulation: int) -> list[list[list[int]]]:
        """The epoch's optimiser steps, each a list of up to ``accumulation`` batches of rows."""
        order = self.order(epoch)
        return [order[i : i + accumulation] for i in range(0, len(order), accumulation)]

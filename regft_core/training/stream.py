"""The rows of one phase: batches, whose order is a pure function of seed and epoch, and all rows for a closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regft_core.catalogue import SAMPLERS
from regft_core.data.batches import Batch, collate, padding_of
from regft_core.data.encode import Encoded
from regft_core.data.examples import Example
from regft_core.errors import RunFailed
from regft_core.hooks.declare import Setting
from regft_core.models.features import answers
from regft_core.models.heads import autocast, evaluating
from regft_core.models.sites import classify
from regft_core.rng import derive
from regft_core.training.step import Step
from regft_core.training.trainee import Trainee

if TYPE_CHECKING:
    from regft_core.hooks.base import Regulariser


class BatchStream:
    """An endless sequence of batches over some rows of a tokenised set.

    Args:
        encoded: the tokenised set.
        trainee, setting: whose padding and device, kind, seed and size the batches have.
        name: determines the order together with seed and epoch.
        rows: row numbers to draw from; None: all, and the smaller batch of an epoch, whose rows the next one may have
            elsewhere, is left out.
        times: how many times larger than that of a step a batch is.
        sampler: the one of ``training.samplers`` that says the order.
    """

    def __init__(
        self,
        encoded: Encoded,
        trainee: Trainee,
        setting: Setting,
        name: str,
        rows: Sequence[int] | None = None,
        *,
        times: int = 1,
        sampler: str = "by_length",
    ) -> None:
        self.encoded, self.setting, self.sampler = encoded, setting, sampler
        self.padding, self.device = padding_of(trainee.tokenizer), trainee.device
        self.batch_size = size = times * setting.training.batch_size
        self.rows = list(range(len(encoded)) if rows is None else rows)
        self.seed_value = derive(setting.seed, "order", name)
        self.lengths = [encoded.lengths[row] for row in self.rows]
        self.least = size if rows is None and len(self.rows) >= size else 1
        self.batches_per_epoch = len(self.rows) // size if self.least > 1 else -(-len(self.rows) // size)
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
                bucket_batches=self.setting.training.bucket_batches,
            )
            count = -(-len(self.rows) // self.batch_size)
            if len(batches) != count or any(not 1 <= len(batch) <= self.batch_size for batch in batches):
                wrong = f"gives {len(batches)} batches; an epoch has {count}, each of 1 to {self.batch_size} rows"
                raise RunFailed("bad-sampler", f"{SAMPLERS.path(self.sampler)}: {wrong}")
            self._epoch = (epoch, [[self.rows[i] for i in batch] for batch in batches if len(batch) >= self.least])
        return self._epoch[1]

    def collate(self, rows: Sequence[int]) -> Batch:
        """These rows as a padded batch on the device."""
        return collate(self.encoded, list(rows), self.padding, self.setting.kind).to(self.device)

    def batch(self, number: int) -> Batch:
        """Batch ``number`` of the endless sequence; epochs follow each other, re-shuffled."""
        epoch, position = divmod(number, self.batches_per_epoch)
        return self.collate(self.order(epoch)[position])

    def steps(self, epoch: int, accumulation: int) -> list[list[list[int]]]:
        """The epoch's optimiser steps, each a list of up to ``accumulation`` batches of rows."""
        order = self.order(epoch)
        return [order[i : i + accumulation] for i in range(0, len(order), accumulation)]


@dataclass
class FitData:
    """Input of :meth:`Regulariser.fit`: the rows that the phase trains on.

    Attributes:
        trainee: the prepared model.
        stream: the training rows, shuffled as the loop would see them.
        validation: the rows set aside (``data.split``), or None.
        examples: the raw rows, numbered as in both streams; see :attr:`training_examples`.
        groups: the group of each of them; None for a task without groups.
        transformer: the regulariser whose ``task_loss`` replaces the task's own, or None.
    """

    trainee: Trainee
    setting: Setting
    stream: BatchStream
    validation: BatchStream | None = None
    examples: Sequence[Example] = ()
    groups: Sequence[str] | None = None
    transformer: Regulariser | None = None

    @property
    def training_examples(self) -> list[Example]:
        """Text and label of every training row, in the order of the subsample."""
        return [self.examples[row] for row in self.stream.rows]

    @property
    def training_groups(self) -> list[str] | None:
        """The group of every training row, in the order of the subsample: folds of a fit keep groups together."""
        return None if self.groups is None else [self.groups[row] for row in self.stream.rows]

    def sequential(self, batch_size: int, *, aside: bool = False) -> Iterator[Batch]:
        """Every training row once, in the order of the subsample, ``batch_size`` at a time.

        With ``aside``, the rows that are set aside instead.
        """
        stream = self.validation if aside else self.stream
        assert stream is not None
        for start in range(0, len(stream.rows), batch_size):
            yield stream.collate(stream.rows[start : start + batch_size])

    def answers(
        self, batch_size: int, *, aside: bool = False, precision: str = "fp32"
    ) -> Iterator[tuple[Batch, Tensor]]:
        """The batches of ``sequential`` with their logits [B, K], as evaluation computes them."""
        for batch in self.sequential(batch_size, aside=aside):
            with evaluating(self.trainee.model), torch.no_grad(), autocast(self.trainee.device, precision):
                logits, _ = classify(self.trainee.model, batch.model_inputs(), padded=batch.padded)
            yield batch, logits

    def received(self, linear: str, batch_size: int) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """The batches of ``sequential``, what the linear of that name receives of them in fp32 [B, d], and logits."""
        answer = answers(self.trainee.model, linear, self.trainee.features)
        for batch in self.sequential(batch_size):
            with evaluating(self.trainee.model), torch.no_grad():
                received, logits = answer(batch)
            yield batch, received, logits

    def step(self, batch: Batch, index: int) -> Step:
        """Passes and the task's losses over ``batch``; ``index`` names the random draws (dropout)."""
        return Step(self.trainee, self.setting, batch, index=index, transformer=self.transformer)

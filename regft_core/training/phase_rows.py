"""The rows of a phase for regularisers that learn from them without optimiser steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from regft_core.data.batches import Batch
from regft_core.data.examples import Example
from regft_core.hooks.declare import Setting
from regft_core.models.features import answers
from regft_core.models.sites import classify
from regft_core.training.step import Step, autocast
from regft_core.training.stream import BatchStream
from regft_core.training.trainee import Trainee


@dataclass
class FitData:
    """Input of :meth:`Regulariser.fit`: the rows that the phase trains on.

    Attributes:
        trainee: the prepared model.
        stream: the training rows, shuffled as the loop would see them.
        validation: the rows set aside (``data.split``), or None.
        examples: the raw rows, numbered as in both streams; see :attr:`training_examples`.
        groups: the group of each of them; None for a task without groups.
    """

    trainee: Trainee
    setting: Setting
    stream: BatchStream
    validation: BatchStream | None = None
    examples: Sequence[Example] = ()
    groups: Sequence[str] | None = None

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
        stream = self.stream
        if aside:
            assert self.validation is not None
            stream = self.validation
        for start in range(0, len(stream.rows), batch_size):
            yield stream.collate(stream.rows[start : start + batch_size])

    def answers(
        self, batch_size: int, *, aside: bool = False, precision: str = "fp32"
    ) -> Iterator[tuple[Batch, Tensor]]:
        """The batches of ``sequential`` with their logits [B, K], as evaluation computes them."""
        for batch in self.sequential(batch_size, aside=aside):
            with self._evaluating(precision):
                logits, _ = classify(self.trainee.model, batch.model_inputs(), padded=batch.padded)
            yield batch, logits

    def received(self, linear: str, batch_size: int) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """The batches of ``sequential``, what the linear of that name receives of them in fp32, and their logits."""
        answer = answers(self.trainee.model, linear, self.trainee.features)
        for batch in self.sequential(batch_size):
            with self._evaluating("fp32"):
                received, logits = answer(batch)
            yield batch, received, logits

    @contextmanager
    def _evaluating(self, precision: str) -> Iterator[None]:
        model = self.trainee.model
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), autocast(self.trainee.device, precision):
                yield
        finally:
            model.train(training)

    def step(self, batch: Batch, index: int) -> Step:
        """Passes and the task's own losses over ``batch``; ``index`` names the random draws (dropout)."""
        return Step(self.trainee, self.setting, batch, index=index)

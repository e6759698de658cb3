"""The rows of a phase for regularisers that learn from them without optimiser steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regft_core.data.batches import Batch
from regft_core.data.examples import Example
from regft_core.hooks.declare import Setting
from regft_core.training.step import Step
from regft_core.training.stream import BatchStream
from regft_core.training.trainee import Trainee


@dataclass
class FitData:
    """What :meth:`Regulariser.fit` reads: the rows that the phase trains on.

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

    def sequential(self, batch_size: int) -> Iterator[Batch]:
        """Every training row once, in the order of the subsample, ``batch_size`` at a time."""
        rows = self.stream.rows
        for start in range(0, len(rows), batch_size):
            yield self.stream.collate(rows[start : start + batch_size])

    def step(self, batch: Batch, index: int) -> Step:
        """Passes and the task's own losses over ``batch``; ``index`` names the random draws (dropout)."""
        return Step(self.trainee, self.setting, batch, index=index)

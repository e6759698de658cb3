"""The batches of a phase, whose order is a function of seed and epoch, and one step as the step programs see it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regft_core.catalogue import SAMPLERS
from regft_core.data.batches import Batch, collate, evaluation_batches, evaluation_tokens, padding_of
from regft_core.data.encode import Encoded
from regft_core.data.examples import Example
from regft_core.errors import RunFailed
from regft_core.hooks.declare import Setting
from regft_core.kinds import find
from regft_core.models.features import answers
from regft_core.models.heads import DTYPES, autocast, evaluating
from regft_core.models.sites import classify
from regft_core.rng import derive
from regft_core.training.chunks import all_finite
from regft_core.training.trainee import Pass, Trainee

if TYPE_CHECKING:
    from regft_core.hooks.base import Regulariser


class BatchStream:
    """An endless sequence of batches over some rows of a tokenised set.

    Args:
        trainee, setting: whose padding and device, kind, seed and size the batches have.
        name: determines the order together with seed and epoch.
        rows: row numbers to draw from; None: all, and the smaller batch of an epoch is left out.
        times: how many times larger than that of a step a batch is.
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

    def evaluation(self) -> Iterator[Batch]:
        """Every row once, as evaluation reads rows: those of similar length together, the longest first."""
        yield from map(self.collate, evaluation_batches(self.encoded, evaluation_tokens(self.device), self.rows))

    def batch(self, number: int) -> Batch:
        """Batch ``number`` of the endless sequence; epochs follow each other, re-shuffled."""
        epoch, position = divmod(number, self.batches_per_epoch)
        return self.collate(self.order(epoch)[position])

    def steps(self, epoch: int, accumulation: int) -> list[list[list[int]]]:
        """The epoch's optimiser steps, each a list of up to ``accumulation`` batches of rows."""
        order = self.order(epoch)
        return [order[i : i + accumulation] for i in range(0, len(order), accumulation)]


def repeat_batch(batch: Batch, times: int) -> Batch:
    """The batch ``times`` times over, one copy after the other along the rows."""
    values = vars(batch).items()
    changes: dict[str, Any] = {name: torch.cat([v] * times) for name, v in values if isinstance(v, Tensor)}
    if batch.windows is not None:
        changes["windows"] = torch.block_diag(*[batch.windows] * times)
    changes |= {"ordinary": batch.ordinary * times, "host_indices": batch.host_indices * times}
    return dataclasses.replace(batch, **changes)


def gradients(loss: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a scalar, with zeros where an input does not matter."""
    return list(torch.autograd.grad(loss, list(inputs), allow_unused=True, materialize_grads=True))


@lru_cache(maxsize=8)  # once a phase, not once a step: a copy to a GPU would have to be waited for
def _on_device(weights: tuple[Any, ...] | None, device: torch.device) -> Tensor | None:
    return None if weights is None else torch.tensor(weights, dtype=torch.float32, device=device)


@dataclass(eq=False)
class Step:
    """Passes, losses and random draws of one batch.

    Attributes:
        index: 0-based optimiser step; the step clock never counts forward calls.
        micro: 0-based batch within the step (gradient accumulation).
        share: this batch's share of the step's examples, by which ``backward`` scales.
        learning_rate: rate of the shared parameter groups in this step.
        validation: batches of the held-out split in a search run, else None.
        unlabelled: batches of texts without labels where a regulariser declares that it reads such, else None.
        transformer: the regulariser whose ``task_loss`` replaces the task's own, or None.
        unmasked: gradients by name before any change or mask, where ``.grad`` is not that any more.
        masked: whether the optimiser steps another gradient than the one that observers see.
        moves: which entries the masks let move, by name; filled where weights get noise.
        seeds: whether a pass seeds the generator that dropout draws from.
        graph_passes: forward passes that wait for a backward one.
    """

    trainee: Trainee
    setting: Setting
    batch: Batch
    _: KW_ONLY
    index: int
    micro: int = 0
    share: float = 1.0
    total: int = 1
    learning_rate: float = 0.0
    scaler: torch.amp.GradScaler | None = None
    validation: BatchStream | None = None
    unlabelled: BatchStream | None = None
    optimizer: torch.optim.Optimizer | None = None
    transformer: Regulariser | None = None
    unmasked: dict[str, Tensor] | None = None
    masked: bool = False
    moves: dict[str, Tensor] = field(default_factory=dict)
    seeds: bool = True
    forward_passes: float = 0.0
    backward_passes: float = 0.0
    graph_passes: float = 0.0

    def forward(
        self,
        name: str = "main",
        *,
        batch: Batch | None = None,
        draw: int | str = 0,
        parts: Sequence[str] = (),
        hidden: bool = False,
    ) -> Any:
        """Run the model in training mode and return fp32 logits ``[B, K]``.

        Args:
            name: name of the pass, for forward sites that act in some passes only.
            batch: another batch than the step's own.
            draw: number or name of the random draw. Passes of the same draw see the same dropout masks and the same
                noise (given equal shapes); draw 0 is that of plain fine-tuning.
            parts: names of equally large parts when several views run as one batch.
            hidden: also return the last hidden states ``[B, n, H]``.
        """
        batch = self.batch if batch is None else batch
        trainee, rows = self.trainee, batch.input_ids.shape[0]
        names = tuple(parts) or (name,)
        height = rows // len(names)
        spans = tuple((part, i * height, (i + 1) * height) for i, part in enumerate(names))
        if self.seeds:
            self.seed(draw)
        trainee.current = Pass(name, spans, (self.index, self.micro, draw), batch.attention_mask, batch.segment)
        try:
            with autocast(trainee.device, self.setting.training.precision):
                logits, states = classify(trainee.model, batch.model_inputs(), need_hidden=hidden, padded=batch.padded)
        finally:
            trainee.current = None
        passes = rows / self.batch.input_ids.shape[0]
        self.forward_passes += passes
        self.graph_passes += passes if torch.is_grad_enabled() else 0.0
        if logits.dtype in DTYPES.values():
            logits = logits.float()
        return (logits, states) if hidden else logits

    def seed(self, draw: int | str = 0) -> None:
        """Let the next pass draw what belongs to this step, batch and ``draw``."""
        torch.manual_seed(derive(self.trainee.seed, "dropout", self.trainee.phase, self.index, self.micro, draw))

    def on(self, batch: Batch) -> Step:
        """The same step on another batch, with counts of its own."""
        other = copy.copy(self)
        other.batch = batch
        other.forward_passes = other.backward_passes = other.graph_passes = 0.0
        return other

    def texts(self) -> Batch:
        """The texts without labels of this step and batch (``Declares.unlabelled``); their labels are all 0."""
        assert self.unlabelled is not None
        return self.unlabelled.batch(self.index * self.setting.training.accumulation + self.micro)

    def weights(self) -> list[Tensor]:
        """The tensors that the loop's optimiser steps."""
        assert self.optimizer is not None
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def task_loss(self, logits: Tensor, labels: Tensor | None = None) -> Tensor:
        """The task's loss of logits ``[B, K]`` and the step's labels ``[B]`` (or ``labels``), or what replaces it."""
        labels = self.batch.labels if labels is None else labels
        if self.transformer is not None:
            return self.transformer.task_loss(self, logits, labels)
        return find(self.setting.kind).task_loss(logits, labels, self.class_weights)

    @property
    def class_weights(self) -> Tensor | None:
        """``Setting.class_weights`` on the training device."""
        return _on_device(self.setting.class_weights, self.trainee.device)

    def gradient(self, name: str) -> Tensor | None:
        """The gradient of a tensor before any change or mask; for ``Regulariser.observe_gradients``."""
        return self.trainee.parameter(name).grad if self.unmasked is None else self.unmasked.get(name)

    def movable(self, name: str) -> Tensor | None:
        """Return which entries of a tensor the gradient masks of this step let move; None: all."""
        return self.moves.get(name)

    def shuffled_labels(self, purpose: str) -> Tensor:
        """The labels of the batch in a random order of its own."""
        labels = self.batch.labels
        return labels[torch.randperm(len(labels), generator=self.generator(purpose), device=labels.device)]

    def backward(self, loss: Tensor, passes: float = 1.0) -> None:
        """Accumulate the gradient of the scalar ``loss``; ``passes`` counts batch-sized backward passes."""
        loss = loss * self.share if self.share != 1.0 else loss
        (self.scaler.scale(loss) if self.scaler is not None else loss).backward()
        self.backward_passes += passes
        self.graph_passes = 0.0

    def gradients(self, loss: Tensor, inputs: Sequence[Tensor], passes: float = 1.0) -> list[Tensor]:
        """Gradients of the scalar ``loss`` in ``inputs``, zeros where one does not matter; ``.grad`` stays as it is.

        Counted like a backward pass; the graph is freed.
        """
        self.backward_passes += passes
        self.graph_passes = max(0.0, self.graph_passes - passes)
        return gradients(loss, inputs)

    def finite(self) -> Tensor | None:
        """Under fp16 whether the gradient is finite, as one boolean on its device; else None: nobody asks in a step.

        The scaler skips a step that overflowed in any tensor. Reading the boolean waits for a GPU.
        """
        if self.scaler is None:
            return None
        return all_finite([p.grad for _, p in self.trainee.named_trainable() if p.grad is not None])

    def generator(self, purpose: str, *key: str | int) -> torch.Generator:
        """Generator of one method's purpose (``hype.noise``) in this step and batch."""
        return self.trainee.generator(purpose, self.index, self.micro, *key)


@dataclass
class FitData:
    """Input of :meth:`Regulariser.fit`: the rows that the phase trains on, and those set aside for ``validation``.

    ``examples`` are the raw rows, numbered as in both streams, with their ``groups``, where the task has such.
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
        """Every training row (or every row ``aside``) once, in the order of the subsample, ``batch_size`` at a time."""
        stream = self.validation if aside else self.stream
        assert stream is not None
        for start in range(0, len(stream.rows), batch_size):
            yield stream.collate(stream.rows[start : start + batch_size])

    def places(self, batches: Iterable[Batch]) -> list[int]:
        """Where each training row stands in batches of all of them, in the order of the subsample."""
        places = {row: place for place, row in enumerate(row for batch in batches for row in batch.host_indices)}
        return [places[row] for row in self.stream.rows]

    def answers(self, *, aside: bool = False, precision: str = "fp32") -> Iterator[tuple[Batch, Tensor]]:
        """The batches of evaluation over the training rows (or those ``aside``), and their logits [B, K]."""
        stream = self.validation if aside else self.stream
        assert stream is not None
        for batch in stream.evaluation():
            with evaluating(self.trainee.model), torch.no_grad(), autocast(self.trainee.device, precision):
                logits, _ = classify(self.trainee.model, batch.model_inputs(), padded=batch.padded)
            yield batch, logits

    def received(self, linear: str) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """The batches of evaluation, what the linear of that name receives of them in fp32 [B, d], and logits."""
        answer = answers(self.trainee.model, linear, self.trainee.features)
        for batch in self.stream.evaluation():
            with evaluating(self.trainee.model), torch.no_grad():
                received, logits = answer(batch)
            yield batch, received, logits

    def step(self, batch: Batch, index: int) -> Step:
        """Passes and the task's losses over ``batch``; ``index`` names the random draws (dropout)."""
        return Step(self.trainee, self.setting, batch, index=index, transformer=self.transformer)

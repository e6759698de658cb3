"""One batch of one optimiser step, as the step programs see it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regft_core.data.batches import Batch
from regft_core.hooks.declare import Setting
from regft_core.kinds import find
from regft_core.models.heads import DTYPES, autocast
from regft_core.models.sites import classify
from regft_core.rng import derive
from regft_core.training.trainee import Pass, Trainee

if TYPE_CHECKING:
    from regft_core.hooks.base import Regulariser
    from regft_core.training.stream import BatchStream


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
    slopes = torch.autograd.grad(loss, list(inputs), allow_unused=True)
    return [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, slopes, strict=True)]


@lru_cache(maxsize=8)  # once a phase, not once a step: a copy to a GPU would have to be waited for
def _on_device(weights: tuple[Any, ...] | None, device: torch.device) -> Tensor | None:
    return None if weights is None else torch.tensor(weights, dtype=torch.float32, device=device)


@dataclass(eq=False)
class Step:
    """Passes, losses and random draws of one batch.

    Attributes:
        index: 0-based optimiser step; the step clock never counts forward calls.
        micro: 0-based batch within the step (gradient accumulation).
        share: this batch's share of the step's examples; ``backward`` scales by it, so that
            accumulated gradients are the gradient of the mean over all examples.
        total: optimiser steps of the whole run.
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
            draw: number or name of the random draw. Passes of the same draw see the same
                dropout masks and the same noise (given equal shapes); draw 0 is that of plain
                fine-tuning, and the pass that a regulariser adds draws under its own name.
            parts: names of equally large parts when several views run as one batch.
            hidden: also return the last hidden states ``[B, n, H]``.
        """
        batch = self.batch if batch is None else batch
        rows = batch.input_ids.shape[0]
        names = tuple(parts) or (name,)
        height = rows // len(names)
        spans = tuple((part, i * height, (i + 1) * height) for i, part in enumerate(names))
        trainee = self.trainee
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
        """The task's loss of logits ``[B, K]`` against the step's labels ``[B]`` (or ``labels``): a scalar.

        A regulariser may transform it.
        """
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

    def backward(self, loss: Tensor, passes: float = 1.0) -> None:
        """Accumulate the gradient of the scalar ``loss``; ``passes`` counts batch-sized backward passes."""
        loss = loss * self.share if self.share != 1.0 else loss
        (self.scaler.scale(loss) if self.scaler is not None else loss).backward()
        self.backward_passes += passes
        self.graph_passes = 0.0

    def gradients(self, loss: Tensor, inputs: Sequence[Tensor], passes: float = 1.0) -> list[Tensor]:
        """Gradients of the scalar ``loss`` in ``inputs`` without touching ``.grad`` (an ascent on a perturbation).

        Counted like a backward pass; the graph is freed. Zeros where an input does not matter.
        """
        self.backward_passes += passes
        self.graph_passes = max(0.0, self.graph_passes - passes)
        return gradients(loss, inputs)

    def generator(self, purpose: str, *key: str | int) -> torch.Generator:
        """Generator of one method's purpose (``hype.noise``) in this step and batch."""
        return self.trainee.generator(purpose, self.index, self.micro, *key)

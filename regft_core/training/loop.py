"""The only training loop.

It knows nothing of any method: regularisers act through the hooks that ``Stack`` calls. A step is
passes and backwards, unscale, what regularisers do around clipping, the optimiser, and what they
do to the weights afterwards (order: ``hooks.base``). Everything random is a function of (seed, phase,
step), so a checkpoint is tensors and integers, and a killed run continues with the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from regft_core.catalogue import SCHEDULES
from regft_core.data.batches import Batch
from regft_core.errors import ModelError, OutOfMemory, RunFailed
from regft_core.hooks.declare import behind
from regft_core.schema.training import TrainingConfig
from regft_core.training import optim
from regft_core.training.graphs import Recorder, StepGraphs, recordable
from regft_core.training.stack import Stack
from regft_core.training.step import BatchStream, Step
from regft_core.training.trainee import Trainee


class Checkpointer(Protocol):
    """Where the loop keeps tensors and JSON values to resume from (see ``runs.run_folder.OpenRun``)."""

    def save_checkpoint(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None: ...

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None: ...


#: Called after every step, behind its checkpoint, with (step, total, epoch, loss or None, seconds so far).
Progress = Callable[[int, int, int, float | None, float], None]
#: How good the model is now; larger is better. It may change nothing and draw nothing.
Judge = Callable[[Trainee], float]


def _state(trainee: Trainee, stack: Stack) -> dict[str, Tensor]:
    """Return the tensors that training changes, of the model and of the regularisers."""
    parts = {"trainee": trainee.state(), "stack": stack.state()}
    return {f"{part}/{name}": value for part, named in parts.items() for name, value in named.items()}


def _load_state(trainee: Trainee, stack: Stack, tensors: Mapping[str, Tensor]) -> None:
    trainee.load_state(behind("trainee/", tensors))
    stack.load_state(behind("stack/", tensors))


@dataclass
class EpochScores:
    """Scores by epoch; with ``keeps_best`` also the state of model and regularisers at the highest.

    ``scores`` are (step, score) of every look; None where the model's answers or their score are no number. ``step`` is
    that of the best look, of equal ones the first, never of one without a score. Scores that are only looked at cannot
    end a run.
    """

    name: str
    judge: Judge
    keeps_best: bool = False
    scores: list[tuple[int, Any]] = field(default_factory=list)
    step: int = 0
    _best: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def look(self, trainee: Trainee, stack: Stack, step: int) -> None:
        """Note the score after ``step``, and keep the state when it is better than before."""
        try:
            score = self.judge(trainee)
        except RunFailed:  # logits that are no numbers
            if self.keeps_best:
                raise
            score = math.nan  # whether the run fails is for its loss to say
        scored = math.isfinite(score)
        better = scored and all(before is None or score > before for _, before in self.scores)
        self.scores.append((step, score if scored else None))
        if self.keeps_best and better:
            self.step = step
            self._best = {name: value.detach().cpu().clone() for name, value in _state(trainee, stack).items()}

    def restore(self, trainee: Trainee, stack: Stack) -> None:
        """Put the best state, where it was kept, in place of the last. Raises RunFailed where no epoch has a score."""
        if self.keeps_best and not self._best:
            message = "training.checkpoint: the metric is not a finite number in any epoch, so none is the best"
            hint = "let the metric be 0.0 where it is undefined (regft test-metric tries it), or set checkpoint: last"
            raise RunFailed("not-finite", f"{message}\n    -> {hint}")
        if self.keeps_best:
            _load_state(trainee, stack, {name: value.to(trainee.device) for name, value in self._best.items()})

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and values for a checkpoint of the run."""
        tensors = {f"{self.name}/{name}": value for name, value in self._best.items()}
        return tensors, {"scores": self.scores, "step": self.step}

    def load(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Restore :meth:`save`."""
        self.scores, self.step = [(step, score) for step, score in meta["scores"]], meta["step"]
        self._best = behind(f"{self.name}/", tensors)


@dataclass
class Progression:
    """Counts of what a run has done so far; a checkpoint stores it and a result is read off it."""

    step: int = 0
    seconds: float = 0.0
    real_tokens: int = 0
    padded_tokens: int = 0
    forward_passes: float = 0.0
    backward_passes: float = 0.0
    batches: int = 0
    curve: list[list[Any]] = field(default_factory=list)


@dataclass
class Loop:
    """One training run: ``train()`` runs it to its last step and returns what it did.

    Args:
        trainee: model whose ``prepare`` hooks have run.
        stream: training batches; ``validation``: of a search run's held-out split; ``unlabelled``: of texts without
            labels.
        checkpoint_seconds: time between checkpoints; 0 writes one after every step.
        steps: optimiser steps where they do not follow from the epochs.
        looks: scores of the model after every epoch; with one that keeps the best, the run leaves that state.
        recorder: records steps that are one plain pass (CUDA graphs); None: no step is recorded.
    """

    trainee: Trainee
    stack: Stack
    stream: BatchStream
    training: TrainingConfig
    validation: BatchStream | None = None
    unlabelled: BatchStream | None = None
    checkpointer: Checkpointer | None = None
    checkpoint_seconds: float = 60.0
    progress: Progress | None = None
    steps: int | None = None
    looks: Sequence[EpochScores] = ()
    recorder: Recorder | None = None

    def __post_init__(self) -> None:
        training = self.training
        self.steps_per_epoch = math.ceil(self.stream.batches_per_epoch / training.accumulation)
        # No epochs means no steps, whatever number of steps the shared protocol has.
        self.total = (training.max_steps or training.epochs * self.steps_per_epoch) if training.epochs else 0
        if self.steps is not None:
            self.total = self.steps
        self.warmup = optim.warmup_steps(training, self.total)
        self.schedule = SCHEDULES.load(training.schedule).factor
        special = self.stack.parameter_groups()
        parameters = dict(self.trainee.named_trainable())
        for group in special:
            parameters.update((n, p) for n, p in group.parameters.items() if p.requires_grad)
        factors = self.stack.learning_rate_factors({*self.trainee.names(), *parameters})
        self.groups = optim.parameter_groups(parameters, training, self.trainee.sites.no_decay, special, factors)
        if self.total and not self.groups:
            message = f"every parameter is frozen, so {self.total} steps would change nothing"
            hint = "set training: {epochs: 0} for this phase, or remove the regulariser that freezes"
            raise ModelError("all-frozen", f"{message}; {hint}")
        self.parameters = list(parameters.values())
        if self.total:
            self.optimizer = self.stack.build_optimizer(self.groups, training)
        self.scaler = torch.amp.GradScaler(self.trainee.device.type, enabled=training.precision == "fp16")
        #: Reading a loss waits for a GPU, so there it is done for several steps at once.
        self.read_every = 1 if self.trainee.device.type == "cpu" else 16
        self.graphs: StepGraphs | None = None
        if self.recorder is not None and recordable(self.stack, training.precision):
            self.graphs = StepGraphs(list(self.parameters), self.recorder, self.stack.backward)
        self.done = Progression()
        self._pending: list[tuple[int, float, Tensor, Tensor]] = []  # loss and gradient norm, unread

    def train(self) -> Progression:
        """Run (or resume) to the last step; a phase without steps returns at once.

        Raises RunFailed where the loss or the gradient norm is not a number, OutOfMemory where the run does not fit.
        """
        if not self.total:
            return self.done
        self._resume()
        self.trainee.model.train()
        self.trainee.attached.train()
        started, saved = time.monotonic() - self.done.seconds, time.monotonic()
        try:
            while self.done.step < self.total:
                epoch, position = divmod(self.done.step, self.steps_per_epoch)
                rows = self.stream.steps(epoch, self.training.accumulation)[position]
                self._step(rows)
                self.done.step += 1
                if len(self._pending) >= self.read_every or self.done.step == self.total:
                    self._flush()  # before the clock is read: it waits for the steps that a GPU has not done yet
                self.done.seconds = time.monotonic() - started
                started += self._judge_epoch()  # no part of what training costs
                if self.done.step < self.total and time.monotonic() - saved >= self.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
                if self.progress is not None:
                    loss = self.done.curve[-1][2] if self.done.curve else None
                    self.progress(self.done.step, self.total, epoch, loss, self.done.seconds)
        except torch.OutOfMemoryError as error:
            message = f"out of memory on {self.trainee.device} in step {self.done.step + 1}"
            hint = "lower training.batch_size and raise training.accumulation by the same factor"
            raise OutOfMemory("out-of-memory", f"{message}; {hint} ({error})") from error
        if all(norm is None for *_, norm in self.done.curve):
            message = f"the gradient overflowed fp16 in all {self.total} steps, so nothing is learned"
            raise RunFailed("not-finite", f"{message}\n    -> set training.precision: bf16 or fp32")
        for scores in self.looks:
            scores.restore(self.trainee, self.stack)
        self.stack.finish(self.trainee)
        return self.done

    def _judge_epoch(self) -> float:
        """Judge the model where an epoch has ended; returns the seconds that this took."""
        if not self.looks or (self.done.step % self.steps_per_epoch and self.done.step != self.total):
            return 0.0
        self._flush()  # waits for the steps that a GPU has not done yet: their time is training's
        looked = time.monotonic()
        for scores in self.looks:
            scores.look(self.trainee, self.stack, self.done.step)
        return time.monotonic() - looked

    def step_on(self, batch: Batch, rate: float = 1.0, *, index: int = 0, **place: Any) -> Step:
        """A step of this run on ``batch``; ``rate``: the factor of the schedule, ``place``: ``micro`` and ``share``."""
        return Step(
            self.trainee,
            self.stack.setting,
            batch,
            index=index,
            total=self.total,
            learning_rate=self.training.learning_rate * rate,
            scaler=self.scaler if self.scaler.is_enabled() else None,
            validation=self.validation,
            unlabelled=self.unlabelled,
            optimizer=self.optimizer,
            transformer=self.stack.transformer,
            **place,
        )

    def _step(self, rows: list[list[int]]) -> None:
        index, training = self.done.step, self.training
        rate = optim.rate_factor(self.schedule, index, self.total, self.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * rate
        examples = sum(len(part) for part in rows)
        backward = (self.graphs or self.stack).backward
        losses = []
        step: Step | None = None
        for micro, part in enumerate(rows):
            batch = self.stream.collate(part)
            step = self.step_on(batch, rate, index=index, micro=micro, share=len(part) / examples)
            if self.stack.batching is not None:
                step.batch = batch = self.stack.batching.change_batch(step)
            losses.append(backward(step) * step.share)
            self.done.real_tokens += batch.real_tokens
            self.done.padded_tokens += batch.padded_tokens
            self.done.forward_passes += step.forward_passes
            self.done.backward_passes += step.backward_passes
            self.done.batches += 1
        assert step is not None
        self.scaler.unscale_(self.optimizer)
        self.stack.before_clip(step)
        limit = training.clip_norm if training.clip_norm is not None else math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, limit)
        self.stack.after_clip(step, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.stack.after_update(step)
        self.optimizer.zero_grad(set_to_none=True)
        self._pending.append((index, training.learning_rate * rate, torch.stack(losses).sum(), norm.detach()))

    def _flush(self) -> None:
        """Read losses back from the device (in groups: each read waits for the device)."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        read = torch.stack([torch.stack([loss.float(), norm.float()]) for _, _, loss, norm in pending]).tolist()
        for (index, rate, _, _), (value, gradient) in zip(pending, read, strict=True):
            scaled_overflow = self.scaler.is_enabled() and math.isfinite(value)
            if not math.isfinite(value) or not (math.isfinite(gradient) or scaled_overflow):
                what = f"gradient norm is {gradient}" if math.isfinite(value) else f"loss is {value}"
                message = f"{what} in step {index + 1} of {self.total} (learning rate {rate:.2e})"
                hint = "lower training.learning_rate or raise training.warmup_ratio"
                raise RunFailed("not-finite", f"{message}; {hint}")
            epoch = index / self.steps_per_epoch
            self.done.curve.append([index + 1, epoch, value, rate, gradient if math.isfinite(gradient) else None])

    def _save(self) -> None:
        if self.checkpointer is None:
            return
        self._flush()
        tensors = _state(self.trainee, self.stack) | optim.optimizer_tensors(self.optimizer)
        meta: dict[str, Any] = {
            "progression": dict(vars(self.done)),
            "diagnostics": self.stack.diagnostics().values,
            "scaler": self.scaler.state_dict(),
        }
        for scores in self.looks:
            kept, meta[scores.name] = scores.save()
            tensors |= kept
        self.checkpointer.save_checkpoint(tensors, meta)

    def _resume(self) -> None:
        stored = self.checkpointer.load_checkpoint() if self.checkpointer is not None else None
        if stored is None:
            return
        tensors, meta = stored
        _load_state(self.trainee, self.stack, tensors)
        optim.load_optimizer_tensors(self.optimizer, tensors)
        self.stack.load_diagnostics(meta["diagnostics"])
        self.scaler.load_state_dict(meta["scaler"])
        for scores in self.looks:
            scores.load(tensors, meta[scores.name])
        self.done = Progression(**meta["progression"])

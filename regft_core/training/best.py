"""Scores after every epoch, part of every checkpoint: to keep the best state of a run by, or only to be looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from regft_core.errors import RunFailed
from regft_core.training.stack import Stack
from regft_core.training.trainee import Trainee

#: How good the model is now; larger is better. It may change nothing and draw nothing.
Judge = Callable[[Trainee], float]


@dataclass
class EpochScores:
    """How the score went, epoch by epoch. Nothing is kept of the model, and no look can end a run.

    Attributes:
        judge: gives the score.
        scores: (step, score) of every look, in order; None where the model answered with something that is no number.
    """

    judge: Judge
    scores: list[tuple[int, float | None]] = field(default_factory=list)

    def look(self, trainee: Trainee, step: int) -> None:
        """Note the score after ``step``."""
        try:
            score = self.judge(trainee)
        except RunFailed:  # logits that are no numbers; whether the run fails is for its loss to say
            score = math.nan
        self.scores.append((step, score if math.isfinite(score) else None))

    def meta(self) -> list[list[Any]]:
        """Return what a checkpoint of the run needs of it."""
        return [list(look) for look in self.scores]

    def load(self, meta: Sequence[Sequence[Any]]) -> None:
        """Take (step, score) pairs of a checkpoint."""
        self.scores = [(int(step), None if score is None else float(score)) for step, score in meta]


@dataclass
class BestState:
    """Keeps what the model and its regularisers were when the score was highest; of equal scores the first.

    Attributes:
        judge: gives the score.
        scores: (step, score) of every look, in order.
        step: the step of the best look; 0 before the first.
    """

    judge: Judge
    scores: list[tuple[int, float]] = field(default_factory=list)
    step: int = 0
    _tensors: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def score(self) -> float | None:
        """The highest score so far."""
        return max((score for _, score in self.scores), default=None)

    def look(self, trainee: Trainee, stack: Stack, step: int) -> None:
        """Judge the model after ``step`` and keep its state when it is better than before."""
        before, score = self.score, self.judge(trainee)
        self.scores.append((step, score))
        if before is None or score > before:
            self.step = step
            state = {f"trainee/{name}": value for name, value in trainee.state().items()}
            state |= {f"stack/{name}": value for name, value in stack.state().items()}
            self._tensors = {name: value.detach().cpu().clone() for name, value in state.items()}

    def restore(self, trainee: Trainee, stack: Stack) -> None:
        """Put the best state instead of the last one."""
        for prefix, load in (("trainee/", trainee.load_state), ("stack/", stack.load_state)):
            device = trainee.device
            load({key[len(prefix) :]: v.to(device) for key, v in self._tensors.items() if key.startswith(prefix)})

    # ------------------------------------------------------------------------------ checkpoints

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint of the run needs of it."""
        return {f"best/{name}": value for name, value in self._tensors.items()}

    def meta(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the tensors."""
        return {"scores": [list(look) for look in self.scores], "step": self.step}

    def load(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Take the state of a checkpoint."""
        self.scores = [(int(step), float(score)) for step, score in meta["scores"]]
        self.step = int(meta["step"])
        own = {name: value for name, value in tensors.items() if name.startswith("best/")}
        self._tensors = {name.removeprefix("best/"): value.detach().cpu().clone() for name, value in own.items()}

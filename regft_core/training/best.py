"""Scores after every epoch, part of every checkpoint: to keep the best state of a run by, or only to be looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from regft_core.errors import RunFailed
from regft_core.hooks.declare import behind
from regft_core.training.stack import Stack
from regft_core.training.trainee import Trainee

#: How good the model is now; larger is better. It may change nothing and draw nothing.
Judge = Callable[[Trainee], float]


@dataclass
class EpochScores:
    """How the score went, epoch by epoch; with ``keeps_best`` also what model and regularisers were at its highest.

    Scores that are only looked at cannot end a run.

    Attributes:
        name: prefix in checkpoints.
        judge: gives the score.
        scores: (step, score) of every look, in order; None where the model answered with something that is no number.
        step: that of the best look, of equal ones the first; 0 before the first.
    """

    name: str
    judge: Judge
    keeps_best: bool = False
    scores: list[tuple[int, Any]] = field(default_factory=list)
    step: int = 0
    _tensors: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def look(self, trainee: Trainee, stack: Stack, step: int) -> None:
        """Note the score after ``step``, and keep the state when it is better than before."""
        if not self.keeps_best:
            try:
                score = self.judge(trainee)
            except RunFailed:  # logits that are no numbers; whether the run fails is for its loss to say
                score = math.nan
            self.scores.append((step, score if math.isfinite(score) else None))
            return
        before, score = max((score for _, score in self.scores), default=None), self.judge(trainee)
        self.scores.append((step, score))
        if before is None or score > before:
            state = {f"trainee/{name}": value for name, value in trainee.state().items()}
            state |= {f"stack/{name}": value for name, value in stack.state().items()}
            self.step, self._tensors = step, _on_host(state)

    def restore(self, trainee: Trainee, stack: Stack) -> None:
        """Put the best state instead of the last one."""
        for prefix, load in (("trainee/", trainee.load_state), ("stack/", stack.load_state)):
            load({name: value.to(trainee.device) for name, value in behind(prefix, self._tensors).items()})

    def tensors(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint of the run."""
        return {f"{self.name}/{name}": value for name, value in self._tensors.items()}

    def meta(self) -> dict[str, Any]:
        """Values for a checkpoint, beside the tensors."""
        return {"scores": [list(look) for look in self.scores], "step": self.step}

    def load(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Take the state of a checkpoint."""
        self.scores = [(int(step), None if score is None else float(score)) for step, score in meta["scores"]]
        self.step, self._tensors = int(meta["step"]), _on_host(behind(f"{self.name}/", tensors))


def _on_host(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in named.items()}

"""What an evaluation sees of one finished run: logits and gold labels of every set, and the model if it asks for it.

Numpy is imported here for real, not at first use: so its version is in the key of what every evaluation finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regft_core.data.encode import Encoded
    from regft_core.data.examples import Example
    from regft_core.training.trainee import Trainee


@dataclass(frozen=True)
class EvaluatedSet:
    """One set with what the run said about it, in the order of its file.

    Attributes:
        kind: ``classification`` or ``regression``.
        logits: [n, K] as the model gave them, over its own K labels; [n, 1] in the labels' unit for a regression.
        gold: [n] indices into ``labels``, or values of a regression.
        examples: [n] with texts and ids.
        labels: names of the set's labels; empty for a regression.
        to_set: [K] index of the set's label that each of the model's own labels counts as; empty for a regression.
    """

    name: str
    kind: str
    logits: npt.NDArray[Any]
    gold: npt.NDArray[Any]
    examples: Sequence[Example]
    labels: tuple[str, ...]
    to_set: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.gold)

    @cached_property
    def predictions(self) -> npt.NDArray[Any]:
        """[n] indices into ``labels``, as they were scored, or values of a regression."""
        if self.kind == "regression":
            return self.logits[:, 0].astype(np.float64)
        predicted: npt.NDArray[Any] = self.to_set[self.logits.argmax(axis=1)]
        return predicted

    def log_probabilities(self, temperature: float = 1.0) -> npt.NDArray[Any]:
        """[n, L] log-probabilities of the set's labels: softmax of the logits, summed over merged labels.

        Minus infinity for labels that none of the model's own counts as. Raises ValueError for a regression.
        """
        if self.kind == "regression":
            raise ValueError("a regression has no probabilities")
        scaled = self.logits.astype(np.float64) / temperature
        scaled = scaled - scaled.max(axis=1, keepdims=True)
        own = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        found = np.full((len(own), len(self.labels)), -np.inf)
        for column, target in enumerate(self.to_set):
            found[:, target] = np.logaddexp(found[:, target], own[:, column])
        return found

    def probabilities(self, temperature: float = 1.0) -> npt.NDArray[Any]:
        """[n, L], rows sum to 1; see ``log_probabilities``."""
        return np.exp(self.log_probabilities(temperature))

    def confidences(self, temperature: float = 1.0) -> npt.NDArray[Any]:
        """[n] probability of the predicted label."""
        rows = np.arange(len(self))
        confidences: npt.NDArray[Any] = self.probabilities(temperature)[rows, self.predictions]
        return confidences


class TrainedModel(Protocol):
    """The finished run's model; made when it is first asked for."""

    @property
    def model(self) -> nn.Module:
        """The plain model, with what it needs for inference put back in, on its device, in evaluation mode."""

    @property
    def trainee(self) -> Trainee:
        """The same model with its sites and hooks."""

    @property
    def kept(self) -> Mapping[str, Tensor]:
        """What the regularisers kept for inference; mostly nothing."""

    def encode(self, examples: Sequence[Example]) -> Encoded:
        """Tokens of the examples, as training and evaluation read them."""

    def predict(self, encoded: Encoded) -> npt.NDArray[Any]:
        """[n, K] logits; raises RunFailed when one is not finite."""

    def held_out(self) -> tuple[list[Example], str]:
        """Training rows that were set aside and never learned from; else none, and why there are none."""


class EvaluatedRun:
    """One finished run.

    Attributes:
        task: of ``task.json``: ``kind``, ``labels`` (the model's own, in the order of its outputs),
            ``positive_label`` and ``sets``.
        seed: of the run.
        options: of the evaluation, an instance of its ``Config``.
        sets: ``dev`` and the out-of-distribution sets by name.
    """

    def __init__(
        self,
        task: Mapping[str, Any],
        seed: int,
        options: Any,
        sets: Mapping[str, EvaluatedSet],
        trained: TrainedModel | None,
    ) -> None:
        self.task = task
        self.seed = seed
        self.options = options
        self.sets = sets
        self._trained = trained

    @property
    def kind(self) -> str:
        """``classification`` or ``regression``."""
        return str(self.task["kind"])

    @property
    def trained(self) -> TrainedModel:
        """The model and what can be done with it.

        Raises RuntimeError when the evaluation's file says that it does not need the model: its code, and the
        version of torch, would be missing from the key of what it finds.
        """
        if self._trained is None:
            raise RuntimeError("this evaluation uses the model; say so in its file: NEEDS_MODEL = True")
        return self._trained

    def held_out(self) -> tuple[EvaluatedSet | None, str]:
        """The held-out share of the training rows with the model's logits, or None and why there is none."""
        examples, reason = self.trained.held_out()
        if not examples:
            return None, reason
        labels = tuple(self.task["labels"] or ())
        gold = np.asarray([example.label for example in examples])
        logits = self.trained.predict(self.trained.encode(examples))
        return EvaluatedSet("held-out", self.kind, logits, gold, examples, labels, np.arange(len(labels))), ""

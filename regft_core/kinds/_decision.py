"""How answers become decisions: offsets of the logits, and at least one label for every example where all have one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regft_core.kinds._base import Array
from regft_core.lazy import Tensor, np, torch


@dataclass(frozen=True)
class Decision:
    """A rule between the logits of a model and its decisions; probabilities stay as they are.

    Attributes:
        offsets: [K], added to the logits of the model's K labels before the decision.
        at_least_one: of several labels, whether the largest is taken where none is above 0.5.
    """

    offsets: tuple[float, ...]
    at_least_one: bool = False

    def logits(self, logits: Array) -> Array:
        """Logits [n, K] by which ``Kind.predictions`` decides, of the model's own."""
        shifted: Array = logits + np.asarray(self.offsets)
        if self.at_least_one:
            rows, largest = np.arange(len(shifted)), shifted.argmax(axis=1)
            shifted[rows, largest] = np.maximum(shifted[rows, largest], np.finfo(np.float32).tiny)
        return shifted

    def scores(self, scores: Sequence[float], *, one_label: bool) -> list[float]:
        """The same of one example's probabilities [K]: those by which ``Kind.answer`` decides."""
        values = np.clip(np.asarray(scores, dtype=np.float64), np.finfo(np.float64).tiny, None)
        with np.errstate(divide="ignore"):
            logits = np.log(values) if one_label else np.log(values) - np.log1p(-np.minimum(values, 1.0))
        shifted = self.logits(logits[None])[0]
        decided = shifted if one_label else shifted > 0
        return decided.astype(np.float64).tolist()

    def at(self, temperature: float) -> Decision:
        return Decision(tuple(offset / temperature for offset in self.offsets), self.at_least_one)

    def tensors(self) -> dict[str, Tensor]:
        offsets = torch.tensor(self.offsets, dtype=torch.float64)
        return {"offsets": offsets, "at_least_one": torch.tensor(float(self.at_least_one), dtype=torch.float64)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Decision:
        return cls(tuple(tensors["offsets"].tolist()), bool(tensors["at_least_one"]))


def decided(decision: Decision | None, logits: Array) -> Array:
    """Logits [n, K] by which ``Kind.predictions`` decides: the model's own where there is no decision."""
    return logits if decision is None else decision.logits(logits)

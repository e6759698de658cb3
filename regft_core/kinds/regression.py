"""Every example has a value, perhaps within a range: one output, squared error.

The network learns targets of mean 0 and standard deviation 1 on its training rows, and its output layer takes the
scale up when it is stored (``training.trainee``), so that answers are in the targets' unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regft_core.errors import RunFailed
from regft_core.kinds._base import Array, Collapse, Declared, Kind
from regft_core.kinds._judging import warn_if_reversed
from regft_core.kinds._reading import bins, read_number
from regft_core.lazy import Tensor, np, torch
from regft_core.metrics._weighted import is_constant, r2

#: Answers are float32, whose neighbours are 1.2e-7 of a value apart: with a mean this many deviations from zero, the
#: rounding of an answer is a tenth of a deviation.
FARTHEST_MEAN = 1e6
#: Below this |Pearson|, a quarter of a per cent of the variance, values count as constant.
CORRELATION_THRESHOLD = 0.05
#: Magnitudes whose products with weights stay within float32.
SMALLEST, LARGEST = 1e-30, 1e30


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of the targets of the training rows."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, targets: Sequence[float]) -> Scale:
        """Return the scale of ``targets`` [n]; equal targets have the deviation 1.

        Raises RunFailed where answers in float32 cannot show the differences between the targets.
        """
        values = np.asarray(targets, dtype=np.float64)
        low, high = float(values.min()), float(values.max())
        if max(-low, high) > LARGEST or 0 < high - low < SMALLEST:
            message = f"targets from {low:g} to {high:g} are beyond what float32 answers can hold"
            raise RunFailed("targets-out-of-range", f"{message}\n    -> write them in another unit")
        mean = float(values.mean())
        deviation = float(values.std()) if high > low else 1.0
        if high > low and abs(mean) > FARTHEST_MEAN * deviation:
            message = f"targets from {low:.17g} to {high:.17g} differ by less than float32 answers can show"
            raise RunFailed("targets-too-close", f"{message}\n    -> subtract {mean:.6g} from every target")
        return cls(mean, deviation)

    def learned(self, targets: Any) -> Any:
        return (targets - self.mean) / self.deviation

    def in_units(self, outputs: Any) -> Any:
        return outputs * self.deviation + self.mean


class Regression(Kind):
    has_labels = False
    one_label = False
    problem_type = "regression"
    dtype = "float64"
    label_keys = ""

    def wrong_labels(self, labels: Sequence[str] | None) -> str | None:
        return None if labels is None else "a regression task has no 'labels'; use 'range'"

    def read_label(self, value: Any, declared: Declared) -> float:
        return read_number(value, declared)

    def strata(self, labels: Sequence[int | float]) -> list[int]:
        return bins(labels)

    def output_names(self, labels: Sequence[str] | None) -> tuple[str, ...]:
        return ("score",)

    def label_tensor(self, labels: Sequence[int | float]) -> Tensor:
        return torch.tensor(labels, dtype=torch.float32)

    def target_scale(self, labels: Sequence[int | float]) -> Scale | None:
        return Scale.of(labels)

    def task_loss(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        predictions = logits.squeeze(-1)
        if predictions.shape != labels.shape:
            raise ValueError(f"predictions {tuple(predictions.shape)} against labels {tuple(labels.shape)}")
        return torch.nn.functional.mse_loss(predictions, labels)

    def predictions(self, logits: Array, to_set: Array) -> Array:
        return logits[:, 0].astype(np.float64)

    def scores(self, logits: Array, to_set: Array, width: int) -> Array:
        return logits.astype(np.float64)

    def constant(self, gold: Array) -> Array:
        return np.full(gold.shape, gold.mean(dtype=np.float64), dtype=np.float64)

    def warning(self, gold: Array, predictions: Array, names: Sequence[str]) -> str | None:
        return warn_if_reversed(gold, predictions)

    def collapsed(self, gold: Array, predictions: Array) -> Collapse | None:
        """``constant``: equal up to float32 rounding, or no linear signal; ``majority``: R^2 is not above 0."""
        if is_constant(predictions):
            return "constant"
        if gold.size < 3 or is_constant(gold):  # no variance to explain
            return None
        if abs(float(np.corrcoef(gold, predictions)[0, 1])) < CORRELATION_THRESHOLD:
            return "constant"
        return "majority" if r2(gold, predictions[None], np.ones((1, gold.size)), None)[0, 0] <= 0 else None

    def shown(self, value: Any, names: Sequence[str]) -> str | float:
        return float(value)

    def answer(self, scores: Sequence[float], labels: Sequence[str]) -> str | float:
        return scores[0]


KIND = Regression

"""The scale of a value's targets: a network learns them with mean 0 and deviation 1, and answers in their unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regft_core.errors import RunFailed
from regft_core.lazy import np

#: Answers are float32, whose neighbours are 1.2e-7 of a value apart: with a mean this many deviations from zero, the
#: rounding of an answer is a tenth of a deviation.
FARTHEST_MEAN = 1e6
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
            raise RunFailed(
                "targets-out-of-range",
                f"targets from {low:g} to {high:g} are beyond what float32 answers can hold\n"
                "    -> write them in another unit",
            )
        mean = float(values.mean())
        deviation = float(values.std()) if high > low else 1.0
        if high > low and abs(mean) > FARTHEST_MEAN * deviation:
            raise RunFailed(
                "targets-too-close",
                f"targets from {low:.17g} to {high:.17g} differ by less than float32 answers can show\n"
                f"    -> subtract {mean:.6g} from every target",
            )
        return cls(mean, deviation)

    def learned(self, targets: Any) -> Any:
        """``targets`` as the network learns them."""
        return (targets - self.mean) / self.deviation

    def in_units(self, outputs: Any) -> Any:
        """``outputs`` of the network in the unit of the targets."""
        return outputs * self.deviation + self.mean

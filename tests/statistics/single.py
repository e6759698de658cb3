"""Arms that are right on known rows, one arm, or two, on their own, and metrics by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.kinds import find
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate

Arm = Mapping[int, npt.ArrayLike]


def right_on(counts: Mapping[str, Sequence[int]], n: int = 200, *, samples: int = 1000) -> Arms:
    """Arms that are right on so many of the first of ``n`` rows, one number per seed."""
    predictions = {
        name: {seed: (np.arange(n) < count).astype(int) for seed, count in enumerate(own)}
        for name, own in counts.items()
    }
    return Arms(predictions, np.ones(n, int), "accuracy", samples=samples)


def one_arm(arm: Arm, labels: npt.ArrayLike, metric: Any, **settings: Any) -> Estimate:
    """The mean over the seeds of ``arm``; ``settings`` as of ``Arms``."""
    return Arms({"a": arm}, labels, metric, **settings).one("a")


def paired_difference(a: Arm, b: Arm, labels: npt.ArrayLike, metric: Any, **settings: Any) -> Estimate:
    """The mean of metric(a) - metric(b); ``settings`` as of ``Arms``."""
    return Arms({"a": a, "b": b}, labels, metric, **settings).difference("a", "b")


def compute(
    names: Sequence[str], *, kind: str, labels: Any, predictions: Any, positive_label_index: int | None = None
) -> dict[str, float]:
    """Metric -> its value, as a run is scored."""
    gold, predicted = (np.asarray(values).astype(find(kind).dtype) for values in (labels, predictions))
    return {name: metrics.find(name).score(gold, predicted, positive_label_index) for name in names}

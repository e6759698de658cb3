"""Training curves, thinned: long runs are averaged over equal bins of steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from regft_core.runs.results.logs import CurvePoint

#: Most points per run and phase in ``curves.csv``; a full-size run has tens of thousands of steps.
POINTS = 500


def thinned(points: Sequence[CurvePoint], most: int = POINTS) -> list[CurvePoint]:
    """Return ``points`` as they are, or at most ``most`` per (seed, phase).

    Each stands for a bin of consecutive steps: means of the values, the bin's last step. A loss
    that was not finite stays missing only when its whole bin was.
    """
    found: list[CurvePoint] = []
    for _, group in groupby(sorted(points, key=lambda p: (p.seed, p.phase, p.step)), lambda p: (p.seed, p.phase)):
        run = list(group)
        if len(run) <= most:
            found += run
            continue
        for part in np.array_split(np.arange(len(run)), most):
            found.append(_mean([run[i] for i in part]))
    return found


def _mean(points: Sequence[CurvePoint]) -> CurvePoint:
    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None and np.isfinite(value)]
        return float(np.mean(known)) if known else None

    last = points[-1]
    return CurvePoint(
        last.seed,
        last.phase,
        last.step,
        mean([p.loss for p in points]),
        mean([p.learning_rate for p in points]),
        mean([p.gradient_norm for p in points]),
    )

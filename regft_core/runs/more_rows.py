"""The protocol of a run on all labelled rows, from that of the runs that were judged on a part of them.

Epochs stay, so every row is seen as often as in the judged runs, and steps grow with the rows. Numbers of steps grow
with them: left as they are, they would be fewer passes, under another share of warm-up, than what was judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from regft_core.schema.method import Phase
from regft_core.schema.training import TrainingConfig


def with_more_rows(
    phase: Phase, training: TrainingConfig, task: str, size: str, judged: Mapping[str, int], now: Mapping[str, int]
) -> TrainingConfig:
    """``training`` of a phase with ``max_steps`` and ``warmup_steps`` scaled by its rows, rounded up.

    Args:
        task: of the run; a phase on another task's rows, or on a number of rows of its own, stays as it is.
        size: of the judged runs.
        judged, now: rows of each set in the judged runs and in this one; ``train`` of them train.
    """
    data = phase.data
    if data.task not in (None, task) or data.size not in (None, "full"):
        return training
    of = data.size or size
    before = judged["train"] if of == "full" else int(of)
    given = {name: getattr(training, name) for name in ("max_steps", "warmup_steps")}
    scaled = {name: math.ceil(steps * now["train"] / before) for name, steps in given.items() if steps}
    return training.model_copy(update=scaled)

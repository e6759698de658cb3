"""Scores by epoch as they are written down: what the report and the tracker show of them. Plain values, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regft_core import metrics
from regft_core.schema.training import CheckpointRule

if TYPE_CHECKING:
    from regft_core.runs.training_run import TrainedPhase

#: The rows that an epoch was scored on: the development set, or training rows that chose the epoch.
DEV, SET_ASIDE = "dev", "held_out"


def epoch_scores(label: str, trained: TrainedPhase, rule: CheckpointRule, primary: str) -> dict[str, Any]:
    """The metric and [phase, rows, step, epoch, score] of every look, in order; empty where no epoch was judged.

    A score is None where the model gave something that is no number. What a rule chooses by is shown like what was
    only looked at; ``rows`` and the protocol tell which it is.

    Args:
        label: name of the phase, or of the member of it.
        primary: the task's primary metric, which judged.
    """
    sign = 1.0 if metrics.higher_is_better(primary) else -1.0  # of a judge's values the larger is always the better
    looks: list[tuple[str, int, float | None]] = []
    if trained.best is not None:
        on = DEV if rule == "best_on_dev_as_published" else SET_ASIDE
        looks += [(on, step, score) for step, score in trained.best.scores]
    if trained.watched is not None:
        looks += [(DEV, step, score) for step, score in trained.watched.scores]
    if not looks:
        return {}
    scores = [
        [label, on, step, step / trained.steps_per_epoch, None if score is None else sign * score]
        for on, step, score in looks
    ]
    return {"epoch_scores": {"metric": primary, "scores": scores}}


def merged_epoch_scores(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Those of several phases, or of all members of one, as one record."""
    found = [result["epoch_scores"] for result in results if "epoch_scores" in result]
    if not found:
        return {}
    return {"epoch_scores": {"metric": found[0]["metric"], "scores": [row for one in found for row in one["scores"]]}}

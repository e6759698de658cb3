"""Requirements that several regularisers have of their phase; nothing here imports torch."""

from __future__ import annotations

from regft_core.schema.method import FINETUNE, Phase


def takes_no_steps(phase: Phase) -> list[str]:
    """What to change in a phase whose result is fitted, so that a step would spoil it."""
    if phase.training.epochs == 0:
        return []
    return ["it is fitted and takes no steps; give its phase 'training: {epochs: 0}'"]


def reads_labels(phase: Phase) -> list[str]:
    """What to change in a phase that hides the labels from a regulariser that learns them."""
    return [] if phase.data.labels else ["it learns from labels; remove 'labels: false' from the data of its phase"]


def is_last(phase: Phase) -> list[str]:
    """What to change where something that only evaluation asks for is in an earlier phase."""
    if phase.name == FINETUNE:
        return []
    return [f"nobody asks for its answers after the phase '{phase.name}'; move it to the phase 'finetune'"]

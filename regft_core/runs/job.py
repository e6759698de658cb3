"""One run to do, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Job:
    """One run to do, as plain values that can be sent to another process.

    Attributes:
        values: tuned settings of the run, dotted; None where nothing is tuned.
        trial: number of the trial that this is; None for a run of the grid.
        fold: of the run's training rows, the fold that the trial is scored on; None where a share is set aside.
        progress: folder of the progress board, or None.
        stored_only: only look the run up; what is not in the run store raises ``NotStored``.
        until: the last stage that is meant.
        refit: train on all labelled rows, with the settings of the evaluated runs; ``values`` are given then.
        store: the run store's folder where it is not that of ``params.yaml``: for a copy of a project on a worker.
    """

    root: str
    method: str
    task: str
    size: str
    seed: int
    progress: str | None = None
    values: Mapping[str, Any] | None = None
    trial: int | None = None
    fold: int | None = None
    stored_only: bool = False
    store: str | None = None
    until: Literal["search", "finetune", "evaluate"] = "evaluate"
    refit: bool = False

    @property
    def name(self) -> str:
        """The run among all of them: ``vanilla cue_pair 300 seed 1``, ``vanilla cue_pair 300 seed 1 trial 2``."""
        trial = "" if self.trial is None else f" trial {self.trial + 1}"
        fold = "" if self.fold is None else f" fold {self.fold + 1}"
        size = f"{self.size}{' refit' if self.refit else ''}"
        return f"{self.method} {self.task} {size} seed {self.seed}{trial}{fold}"

    def with_values(self, values: Mapping[str, Any]) -> Job:
        """The same run with these tuned settings."""
        return replace(self, values=values)

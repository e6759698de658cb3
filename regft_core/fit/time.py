"""Seconds of the methods that ``regft fit`` may take: the one place where its plan becomes time."""

from __future__ import annotations

from regft_core.grid.time import estimate
from regft_core.hooks.registry import discover
from regft_core.settings.cost import plan_rows
from regft_core.settings.project import Project

#: Seconds of a trial beside its steps: the encoder is loaded, the rows set aside are answered. A run takes no less,
#: which counts where a tiny grid is priced by an assumed speed.
EACH = 1.0


def seconds_per_run(project: Project) -> dict[str, float]:
    """Method -> seconds of one worker for one run, with its trials, of a project with one task and one size."""
    tuning = project.params.tuning
    rounds = 1 if tuning is None else tuning.rounds
    found = estimate(project, plan_rows(project, discover(), lambda cell: set()))
    return {
        cell.method: max(seconds, EACH) + EACH * rounds * len(project.trials(cell.method))
        for cell, seconds in found.runs.items()
    }

"""Seconds of the methods that ``stages.fit`` may take: the one place where its plan becomes time."""

from __future__ import annotations

from regft_core.config.cost import plan_rows
from regft_core.config.project import Project
from regft_core.hooks.registry import discover
from regft_core.plan.gpu_hours import CORE_SPEED, encoder_weights

#: Seconds that a run or trial takes beside its steps: the encoder is loaded, rows are answered.
EACH = 1.0


def seconds_per_run(project: Project, tokens: float) -> dict[str, float]:
    """Method -> seconds of one worker for one run, with its trials.

    The one place where a plan becomes time: steps as declared on an assumed core. ``tokens``: mean of a row.
    """
    weights = encoder_weights(project.params.model.name, project.root) or 8.5e7
    step = 6 * weights * project.params.training.batch_size * tokens / CORE_SPEED
    rows = plan_rows(project, discover(), lambda cell: set(), lambda task: step)
    tuning = project.params.tuning
    found = {}
    for row in rows:
        runs = 1 + len(project.trials(row.cell.method)) * (tuning.rounds if tuning is not None else 1)
        found[row.cell.method] = (row.cost or 0.0) * step + runs * EACH
    return found

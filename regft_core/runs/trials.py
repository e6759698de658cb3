"""The trials of a run as jobs. No torch here."""

from __future__ import annotations

from regft_core.runs.job import Job
from regft_core.settings.project import Project


def trials_of_run(project: Project, method: str, task: str, size: str, seed: int) -> list[Job]:
    """The trials of one run of the grid, in their order, once for each fold; empty where nothing is tuned."""
    tuning = project.params.tuning
    folds = [None] if tuning is None or tuning.folds is None else range(tuning.folds)
    return [
        Job(str(project.root), method, task, size, seed, values=one, trial=number, fold=fold)
        for number, one in enumerate(project.trials(method))
        for fold in folds
    ]


def trials_that_choose(project: Project, job: Job) -> list[Job]:
    """The trials that the choice for a run is made from: its own, or those of all seeds where these choose together."""
    tuning, seeds = project.params.tuning, project.params.grid.seeds
    if tuning is not None and tuning.judged_by_seed:
        seeds = (job.seed,)
    return [one for seed in seeds for one in trials_of_run(project, job.method, job.task, job.size, seed)]

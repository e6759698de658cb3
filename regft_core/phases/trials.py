"""The trials of a method on a task as jobs: which there are, and how they run through one pool of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.config.project import Project
from regft_core.config.provenance import described
from regft_core.phases.cells import Call, Work, records_of, run_of
from regft_core.phases.context import Context, Job
from regft_core.phases.project import open_project
from regft_core.progress import ProgressBoard


def trials_of_run(project: Project, method: str, task: str, size: str, seed: int) -> list[Job]:
    """The trials of one run of the grid, in their order; empty where nothing is tuned."""
    values = enumerate(project.trials(method))
    return [Job(str(project.root), method, task, size, seed, values=one, trial=number) for number, one in values]


def trials_that_choose(project: Project, job: Job) -> list[Job]:
    """The trials that the choice for a run is made from: its own, or those of all seeds where these choose together."""
    tuning, seeds = project.params.tuning, project.params.grid.seeds
    if tuning is not None and tuning.judged_by_seed:
        seeds = (job.seed,)
    return [one for seed in seeds for one in trials_of_run(project, job.method, job.task, job.size, seed)]


def run_trials(root: Path, function: Work, method: str, task: str) -> list[dict[str, Any]]:
    """Run every trial of a method on a task, for every size and seed, through one pool of workers.

    Records come in the order of the sizes, the seeds, the trials. Empty where nothing is tuned.
    """
    project = open_project(root)
    grid = project.params.grid
    runs = [(str(size), seed) for size in grid.sizes for seed in grid.seeds]
    jobs = [job for run in runs for job in trials_of_run(project, method, task, *run)]
    if not jobs:
        return []
    with ProgressBoard(f"trials {method} {task}", [job.run for job in jobs], {}) as board:

        def ended(index: int, record: dict[str, Any]) -> None:
            computed = board.ended(jobs[index].run)
            print(describe_trial(record, computed=computed), flush=True)

        calls = [Call(replace(job, progress=board.folder), function, None) for job in jobs]
        records = records_of(project, calls, ended)
    Context(jobs[0], project=project).store.prune()
    return records


def describe_trial(record: dict[str, Any], *, computed: bool = True) -> str:
    """One line per trial for the terminal."""
    stored = "" if computed else "  (from the run store)"
    run = f"  {run_of(record)}, trial {record['trial'] + 1} ({described(record['values'])})"
    if record["status"] != "ok":
        return f"{run}: FAILED: {record['error']}"
    return f"{run}: {record['steps']} steps, score {record['score']:.4f}{stored}"

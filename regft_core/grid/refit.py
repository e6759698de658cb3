"""The final model: a method trained on all labelled rows, with the settings of the evaluated runs.

A phase with ``refit: mean_of_runs`` has the mean of their weights instead, one with ``refit: 3`` that of three
trainings on all rows (Wortsman et al., "Model soups", ICML 2022). Tuned values are those of the trial with the best
mean score over all evaluated seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError, DataError, Problem
from regft_core.grid.cell_keys import cell_keys
from regft_core.grid.data import prepare
from regft_core.grid.jobs import PlannedJob, Planner, run_on_executor
from regft_core.output import ProgressBoard
from regft_core.runs.context import Context, Job
from regft_core.runs.records import RunRecord
from regft_core.runs.train import choose
from regft_core.runs.work import Work, is_current
from regft_core.settings.layers import sizes_of
from regft_core.settings.project import Cell, Project, check_listed
from regft_core.settings.read_project import open_project


def refit(
    root: Path,
    method: str,
    task: str | None = None,
    size: str | None = None,
    seed: int | None = None,
    *,
    judged: bool = True,
    say: Callable[[str], None] = print,
) -> Job:
    """Train a method on all labelled rows of a task, or find that run; returns its job, which ``export`` takes.

    ``judged``: whether runs of the grid were evaluated. Raises ConfigError as ``judged_run``, or where the development
    set chose the epoch; DataError: the cell was not evaluated as it is configured now; JobsFailed.
    """
    project = open_project(root)
    job = judged_run(project, method, task, size, seed)
    prepare(project, project.method(method, job.task), job.task)
    if judged:
        cell = job.cell
        _require_judged(project, cell)
        runs = Work(root).finetune(cell).runs
        evaluated = tuple((run.seed, run.tuned.values if run.tuned else None) for run in runs if run.ok)
        job = replace(job, values=_values(project, cell, runs), evaluated=evaluated)
    job = replace(job, refit=True, until="finetune")
    context = Context(job, project=project)
    checkpoints = {phase.training.checkpoint for phase in context.phases}
    if "best_on_dev_as_published" in checkpoints and "dev" not in context.task["sets"]:
        message = "the development set chose the epoch of the judged runs; a refit trains on its rows"
        hint = "set it to last or best_on_split and run `dvc repro`, or export without --refit"
        raise ConfigError([Problem("refit-choice", "params.yaml", 0, "training.checkpoint", message, hint)])
    shares = Planner(project).steps(context, context.method.phases)
    with ProgressBoard("refit", {job.name: shares}) as board:

        def ended(_: int, line: str) -> None:
            board.ended(job.name)
            say(line)

        keys = {phase.key() for phase in context.phases}
        keys |= {phase.key(member) for one in context.phases for phase, member in one.members}
        run_on_executor(project, [PlannedJob(job, shares, keys)], board.folder, on_result=ended)
    return job


def judged_run(project: Project, method: str, task: str | None, size: str | None, seed: int | None) -> Job:
    """Return a run of the grid, with what a command left out: the only task and size, the first seed.

    Raises ConfigError for a name that is not listed, and where there are several tasks or sizes.
    """
    grid = project.params.grid
    task = _only("task", task, grid.tasks)
    size = _only("size", size, [str(number) for number in sizes_of(project.params, task)])
    seed = grid.seeds[0] if seed is None else seed
    check_listed(project, method=method, task=task, size=size, seed=seed)
    return Job(str(project.root), method, task, size, seed)


def _only(what: str, name: str | None, listed: Sequence[str]) -> str:
    if name is not None:
        return name
    if len(listed) > 1:
        message = f"the grid has several {what}s ({', '.join(listed)}), and --{what} names none"
        hint = f"add --{what} {listed[0]}, or another of them"
        raise ConfigError([Problem("which-one", "params.yaml", 0, f"grid.{what}s", message, hint)])
    return listed[0]


def _require_judged(project: Project, cell: Cell) -> None:
    keys = cell_keys(project.snapshot(), cell)["evaluate"]
    folder = Work(project.root).folder("evaluate", cell)
    if not is_current(folder, keys):
        why = "was not judged yet" if not folder.is_dir() else "was judged with other settings, code, rows or packages"
        what = f"--refit: {cell.directory} {why}, so nothing is known of the score of a final model"
        raise DataError("not-judged", f"{what}\n    -> run `dvc repro`, then this again")


def _values(project: Project, cell: Cell, runs: Sequence[RunRecord]) -> dict[str, Any] | None:
    """The values of the trial with the best mean score over the evaluated seeds; None where nothing is tuned."""
    tuning = project.params.tuning
    if tuning is None or not project.trials(cell.method):
        return None
    of_runs = {run.seed: run.tuned.trials for run in runs if run.tuned is not None}
    records = [{"seed": seed, **trial.model_dump()} for seed, trials in of_runs.items() for trial in trials]
    return dict(choose(records, tuning, project.tasks[cell.task].primary, records[0]["seed"])["values"])

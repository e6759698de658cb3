"""Cached runs of the grid, in ``work/`` or in the run store, and the plan's rows. No torch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from regft_core.errors import DataError
from regft_core.grid.jobs import jobs_of
from regft_core.grid.keys import run_key
from regft_core.hooks.registry import discover
from regft_core.models.source import encoder_present
from regft_core.runs.context import Context
from regft_core.runs.job import Job
from regft_core.runs.store import NotStored
from regft_core.runs.trials import choice_of
from regft_core.runs.work import keys_of
from regft_core.schema.method import FINETUNE
from regft_core.settings.cost import Cached, PlanRow, plan_rows
from regft_core.settings.grid import Cell
from regft_core.settings.project import Project


def cached_seeds(project: Project, cell: Cell) -> set[int]:
    """Seeds of a cell whose runs need no training under the present configuration.

    Without the encoder on this disk no run has a key; it is not downloaded for a dry run.
    """
    method, model = project.method(cell.method, cell.task), project.model(cell.task)
    if not all(encoder_present(method.encoder(model, phase), project.root) for phase in method.phases):
        return set()
    written: Any = keys_of(project.root / "work" / "finetune" / cell.directory) or {}
    there, seeds = written.get("runs", {}), set[int]()
    for job in jobs_of(project, cell):
        with suppress(DataError):  # its rows are not drawn yet
            if there.get(str(job.seed)) == run_key(Context(job, project=project)) or _in_store(project, job):
                seeds.add(job.seed)
    return seeds


def _in_store(project: Project, job: Job) -> bool:
    try:
        tuned = choice_of(replace(job, stored_only=True), project)
    except NotStored:
        return False  # what will be chosen is not known yet
    context = Context(job if tuned is None else job.with_values(tuned["values"]), project=project)
    return context.store.holds(context.keys.of(FINETUNE))


def grid_rows(project: Project, cached: Cached | None = None) -> list[PlanRow]:
    """Return ``plan_rows``; ``cached``: seeds of a cell whose runs exist, by default those of ``cached_seeds``."""
    return plan_rows(project, discover(), cached or (lambda cell: cached_seeds(project, cell)))

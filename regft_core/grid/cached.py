"""Cached runs of the grid, in ``work/`` or in the run store, and the plan's rows with what they share. No torch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
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
from regft_core.settings.cost import Cached, PlanRow, phase_cost, plan_rows
from regft_core.settings.grid import Cell
from regft_core.settings.project import Project


def cached_seeds(project: Project, cell: Cell) -> set[int]:
    """Seeds of a cell whose runs need no training under the present configuration.

    Without the encoder on this disk no run has a key; it is not downloaded for a dry run.
    """
    if not encoder_present(project.params.model, project.root):
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
    """``plan_rows``, with ``shared`` of each.

    A row shares nothing where its keys are not known: without the encoder, without prepared rows, and where trials
    choose the values of a method.

    Args:
        project: a valid project.
        cached: seeds of a cell whose runs exist; by default those of ``cached_seeds``.
    """
    cached = cache(cached or (lambda cell: cached_seeds(project, cell)))
    rows = plan_rows(project, discover(), cached)
    if not encoder_present(project.params.model, project.root):
        return rows
    trained: set[str] = set()
    return [replace(row, shared=_shared(project, row, cached, trained)) for row in rows]


def _shared(project: Project, row: PlanRow, cached: Cached, trained: set[str]) -> float:
    """Return the part of a row's training that is cached or trained before it; add its keys to ``trained``."""
    if not row.cost or not row.to_train or project.trials(row.cell.method):
        return 0.0
    whole, added, seeds = row.cost * row.to_train, 0.0, cached(row.cell)
    try:
        for job in jobs_of(project, row.cell):
            if job.seed in seeds:
                continue
            context = Context(job, project=project)
            for phase in context.method.phases:
                cost = phase_cost(phase, row.rows, context.registry, project.shared(row.cell.task)) or 0.0
                for key in context.keys.member_keys(phase.name):
                    if key not in trained and not context.store.holds(key):
                        added += cost / phase.members
                    trained.add(key)
    except DataError:
        return 0.0  # not even the rows are there yet
    return max(0.0, 1 - added / whole)

"""The plan's rows with what they share: a training that several cells name is counted where it comes first."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from regft_core.errors import DataError
from regft_core.grid.jobs import jobs_of
from regft_core.grid.stored import cached_seeds
from regft_core.hooks.registry import discover
from regft_core.models.source import encoder_present
from regft_core.runs.context import Context
from regft_core.settings.cost import Cached, PlanRow, phase_cost, plan_rows
from regft_core.settings.project import Project


def grid_rows(project: Project, cached: Cached | None = None) -> list[PlanRow]:
    """``plan_rows``, with ``shared`` of each.

    A row shares nothing where its keys are not known: without the encoder, without prepared rows, and where trials
    choose the values of a method.

    Args:
        project: a valid project.
        cached: seeds of a cell whose runs exist; by default what ``work/`` and the run store have.
    """
    cached = cache(cached or (lambda cell: cached_seeds(project, cell)))
    rows = plan_rows(project, discover(), cached)
    if not encoder_present(project.params.model, project.root):
        return rows
    trained: set[str] = set()
    return [replace(row, shared=_shared(project, row, cached, trained)) for row in rows]


def _shared(project: Project, row: PlanRow, cached: Cached, trained: set[str]) -> float:
    """The part of a row's training that is there; adds its keys to ``trained``."""
    if not row.cost or not row.to_train or project.trials(row.cell.method):
        return 0.0
    whole, added, there = row.cost * row.to_train, 0.0, cached(row.cell) or set()
    try:
        for job in jobs_of(project, row.cell):
            if job.seed in there:
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

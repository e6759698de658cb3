"""Which runs of the grid are there already, in ``work/`` or in the run store. No torch here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regft_core.errors import DataError
from regft_core.grid.jobs import jobs_of
from regft_core.grid.keys import cell_keys
from regft_core.models.source import encoder_present
from regft_core.runs.context import Context
from regft_core.runs.job import Job
from regft_core.runs.keyed import keys_of
from regft_core.runs.store import NotStored
from regft_core.runs.trials import choice_of
from regft_core.schema.method import FINETUNE
from regft_core.settings.grid import Cell
from regft_core.settings.project import Project


def cached_seeds(project: Project, cell: Cell) -> set[int]:
    """Seeds of a cell whose runs need no training under the present configuration.

    Without the encoder on this disk no run has a key; it is not downloaded for a dry run.
    """
    if not encoder_present(project.params.model, project.root):
        return set()
    try:
        planned = cell_keys(project, cell)["finetune"]["runs"]
    except DataError:
        return set()  # not even the rows are there yet
    written: Any = keys_of(project.root / "work" / "finetune" / cell.directory) or {}
    there = written.get("runs", {})
    return {
        job.seed
        for job in jobs_of(project, cell)
        if there.get(str(job.seed)) == planned[str(job.seed)] or _in_store(project, job)
    }


def _in_store(project: Project, job: Job) -> bool:
    try:
        tuned = choice_of(replace(job, stored_only=True))
    except NotStored:
        return False  # what will be chosen is not known yet
    context = Context(job if tuned is None else job.with_values(tuned["values"]), project=project)
    return context.store.holds(context.keys.of(FINETUNE))

"""One run of the grid, from its trials, if there are any, to its evaluation, in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from regft_core.runs.context import Job, Stage
from regft_core.runs.evaluate import evaluate
from regft_core.runs.store import NotStored
from regft_core.runs.train import Record, chosen, finetune, search
from regft_core.settings.project import Project
from regft_core.settings.read_project import open_project


def run(
    job: Job, project: Project | None = None, *, device: str = "cpu", until: Stage = "evaluate"
) -> dict[Stage, Record]:
    """The record of every stage of one run up to ``until``, with the values that its trials choose, if any."""
    project = project or open_project(Path(job.root))
    context, tuned = chosen(job, project, device)
    records: dict[Stage, Record] = {"search": search(context) | ({} if tuned is None else {"tuned": tuned})}
    if until != "search":
        records["finetune"] = finetune(context, records["search"])
        if until == "evaluate":
            records["evaluate"] = evaluate(context, records["finetune"])
    return records


def look_up(job: Job, project: Project, stage: Stage) -> Record | None:
    """The record of one stage of a run if all of it is in the store, else None; imports no torch."""
    try:
        return run(replace(job, stored_only=True), project, until=stage)[stage]
    except NotStored:
        return None

"""One run of the grid, from its trials, if there are any, to its evaluation, in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.job import Job
from regft_core.runs.project import open_project
from regft_core.runs.store import NotStored
from regft_core.runs.train import finetune, search, tuned_values
from regft_core.runs.trials import choice_of
from regft_core.settings.project import Project

Record = dict[str, Any]
Stage = Literal["search", "finetune", "evaluate"]
STAGES: tuple[Stage, ...] = ("search", "finetune", "evaluate")
#: What fine-tuning starts from when no phase comes before it.
NOTHING_SEARCHED: Record = {"phases": {}, "phase_steps": {}, "marks": [], "status": "ok", "error": None}


def run(
    job: Job, project: Project | None = None, *, device: str = "cpu", until: Stage = "evaluate"
) -> dict[Stage, Record]:
    """The record of every stage of one run up to ``until``, found in the run store or computed.

    Where values are tuned, the stored trials choose them; the job of a refit has them.

    Args:
        project: whose configuration holds for all of it; opened where the caller has none.
    """
    project = project or open_project(Path(job.root))
    tuned = choice_of(job, project, device=device)
    context = Context(job if tuned is None else job.with_values(tuned["values"]), device, project)
    records: dict[Stage, Record] = {"search": search(context) | ({} if tuned is None else {"tuned": tuned})}
    if until != "search":
        records["finetune"] = finetune(context, records["search"])
        if until == "evaluate":
            records["evaluate"] = evaluate(context, records["finetune"])
    return records


def look_up(job: Job, project: Project, stage: Stage, before: Record | None = None) -> Record | None:
    """The record of one stage of a run if all of it is in the store, else None; imports no torch.

    ``before`` is the record of the stage before it; None where nothing comes before fine-tuning.
    """
    stored = replace(job, stored_only=True)
    try:
        if stage == "search":
            return run(stored, project, until="search")["search"]
        values = tuned_values(before)
        context = Context(stored if values is None else stored.with_values(values), project=project)
        if stage == "finetune":
            return finetune(context, before or NOTHING_SEARCHED)
        assert before is not None
        return evaluate(context, before)
    except NotStored:
        return None

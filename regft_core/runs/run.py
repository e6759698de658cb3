"""One run of the grid, from its trials, if there are any, to its evaluation, in one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.job import Job
from regft_core.runs.phase_record import tuned_values
from regft_core.runs.project import kept_open
from regft_core.runs.store import NotStored
from regft_core.runs.train import finetune, search
from regft_core.runs.trials import choice_of

Record = dict[str, Any]
Stage = Literal["search", "finetune", "evaluate"]
STAGES: tuple[Stage, ...] = ("search", "finetune", "evaluate")
#: What fine-tuning starts from when no phase comes before it.
NOTHING_SEARCHED: Record = {"phases": {}, "phase_steps": {}, "marks": [], "status": "ok", "error": None}


def run(job: Job, *, device: str = "cpu", until: Stage = "evaluate") -> dict[Stage, Record]:
    """The record of every stage of one run up to ``until``, found in the run store or computed.

    Where values are tuned, the stored trials choose them; the job of a refit has them. One configuration holds for all
    of it.
    """
    with kept_open():
        tuned = choice_of(job, device=device)
        context = Context(job if tuned is None else job.with_values(tuned["values"]), device)
        records: dict[Stage, Record] = {"search": search(context) | ({} if tuned is None else {"tuned": tuned})}
        if until != "search":
            records["finetune"] = finetune(context, records["search"])
            if until == "evaluate":
                records["evaluate"] = evaluate(context, records["finetune"])
        return records


def look_up(job: Job, stage: Stage, before: Record | None = None) -> Record | None:
    """The record of one stage of a run if all of it is in the store, else None; imports no torch.

    ``before`` is the record of the stage before it; None where nothing comes before fine-tuning.
    """
    asked = replace(job, stored_only=True)
    try:
        if stage == "search":
            return run(asked, until="search")["search"]
        with kept_open():
            values = tuned_values(before)
            context = Context(asked if values is None else asked.with_values(values))
            if stage == "finetune":
                return finetune(context, before or NOTHING_SEARCHED)
            assert before is not None
            return evaluate(context, before)
    except NotStored:
        return None

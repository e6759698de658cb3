"""One run of the grid, from its trials, if there are any, to its evaluation, in one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from regft_core.runs.evaluate import evaluate
from regft_core.runs.finetune import finetune
from regft_core.runs.job import Job
from regft_core.runs.project import kept_open
from regft_core.runs.records import known_keys, tuned_values
from regft_core.runs.search import search
from regft_core.runs.store.lookup import NotStored
from regft_core.runs.trial_scores import choice_of

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
        searched = _searched(job, device)
        found: dict[Stage, Record] = {"search": searched}
        if until != "search":
            found["finetune"] = trained = _finetuned(job, searched, device)
            if until == "evaluate":
                found["evaluate"] = _evaluated(job, trained, device)
        return found


def look_up(job: Job, stage: Stage, before: Record | None = None) -> Record | None:
    """The record of one stage of a run if all of it is in the store, else None; imports no torch.

    ``before`` is the record of the stage before it; None where nothing comes before fine-tuning.
    """
    asked = replace(job, stored_only=True)
    try:
        with kept_open():
            if stage == "search":
                return _searched(asked, "cpu")
            if stage == "finetune":
                return _finetuned(asked, before or NOTHING_SEARCHED, "cpu")
            assert before is not None
            return _evaluated(asked, before, "cpu")
    except NotStored:
        return None


def _searched(job: Job, device: str) -> Record:
    tuned = choice_of(job, device=device)
    if tuned is None:
        return search(job, device=device)
    return search(replace(job, values=tuned["values"]), device=device) | {"tuned": tuned}


def _finetuned(job: Job, searched: Record, device: str) -> Record:
    values = tuned_values(searched) if "tuned" in searched else job.values
    return finetune(replace(job, keys=known_keys(searched), values=values), searched, device=device)


def _evaluated(job: Job, trained: Record, device: str) -> Record:
    return evaluate(replace(job, keys=known_keys(trained), values=tuned_values(trained)), trained, device=device)

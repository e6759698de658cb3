"""One run of the grid from its trials, if there are any, to its evaluation, in one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regft_core.phases.cells import NOTHING_SEARCHED
from regft_core.phases.context import Job
from regft_core.phases.evaluate import evaluate
from regft_core.phases.finetune import finetune
from regft_core.phases.project import kept_open
from regft_core.phases.records import known_keys
from regft_core.phases.search import search
from regft_core.phases.tuning import choice_of
from regft_core.runs.lookup import NotStored


def whole_run(job: Job, *, device: str = "cpu") -> list[dict[str, Any]]:
    """The records of all stages of one run, computed or found: search (if there is any), finetune, evaluate.

    Where values are tuned, those are taken that the stored trials have chosen. One configuration holds for all of it.
    """
    with kept_open():
        return _whole_run(job, device)


def _whole_run(job: Job, device: str) -> list[dict[str, Any]]:
    tuned = choice_of(job, device=device)
    if tuned is not None:
        job = replace(job, values=tuned["values"])
    searched = search(job, device=device)
    if tuned is not None:
        searched["tuned"] = tuned
    elif not searched["phases"] and searched["status"] == "ok":
        searched = NOTHING_SEARCHED
    trained = finetune(replace(job, keys=known_keys(searched)), searched, device=device)
    evaluated = evaluate(replace(job, keys=known_keys(trained)), trained, device=device)
    return [*([] if searched is NOTHING_SEARCHED else [searched]), trained, evaluated]


def look_up_run(job: Job) -> list[dict[str, Any]] | None:
    """The records of one run if all of it, its trials too, is in the store, else None; imports no torch."""
    try:
        return whole_run(replace(job, stored_only=True))
    except NotStored:
        return None

"""The run of another method beside a run: the same task, size and seed."""

from __future__ import annotations

from dataclasses import replace

from regft_core.runs.context import Context
from regft_core.runs.trial_scores import choice_of


def beside(context: Context, method: str) -> Context:
    """The context of ``method``'s run beside that of ``context``; where values are tuned, its trials choose them.

    Raises NotStored: ``job.stored_only``, and a trial is not there.
    """
    if method == context.job.method:
        return context
    job = replace(context.job, method=method, keys={}, values=None)
    tuned = choice_of(job, device=context.device)
    return Context(job if tuned is None else job.with_values(tuned["values"]), context.device, context.project)

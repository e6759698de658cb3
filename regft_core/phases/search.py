"""The stage before fine-tuning: every earlier phase of one run, in order, each stored by itself."""

from __future__ import annotations

from typing import Any

from regft_core.phases.context import Context, Job
from regft_core.phases.records import merged_record
from regft_core.phases.run_phase import produce


def search(job: Job, *, device: str = "cpu") -> dict[str, Any]:
    """Produce the earlier phases of one seed; returns their keys and their merged record.

    A phase whose loss became NaN gives ``status: failed``, and the phases after it are not run.
    """
    context = Context(job, device)
    keys: dict[str, str] = {}
    done = []
    for earlier in context.method.earlier:
        phase = context.phase(earlier.name)
        stored = produce(context, phase)
        keys[phase.name] = stored.key
        done.append(stored)
        if stored.result["status"] != "ok":
            error = f"phase '{phase.name}' failed: {stored.result['error']}"
            return _record(job, keys, done) | {"status": "failed", "error": error}
        # Pruning must not take from under a later phase, of this run or on another host, what it starts from.
        context.store.pin(stored.key, _owner(job))
    return _record(job, keys, done) | {"status": "ok", "error": None}


def release(context: Context) -> None:
    """Fine-tuning is done: nothing of this run waits for the earlier phases any more."""
    for earlier in context.method.earlier:
        if earlier.name in context.job.keys:
            context.store.unpin(context.job.keys[earlier.name], _owner(context.job))


def _owner(job: Job) -> str:
    return f"finetune-{job.method}-{job.task}-{job.size}-{job.seed}"


def _record(job: Job, keys: dict[str, str], done: list[Any]) -> dict[str, Any]:
    steps = {stored.result["phase"]: stored.result.get("steps", 0) for stored in done}
    environment = done[-1].result["environment"] if done else None
    merged = merged_record(done)
    return {
        "size": job.size,
        "seed": job.seed,
        "phases": keys,
        "phase_steps": steps,
        "environment": environment,
    } | merged

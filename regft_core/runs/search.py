"""The stage before fine-tuning: every earlier phase of one run, in order, each stored by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regft_core.runs.context import Context
from regft_core.runs.environment import other_environments
from regft_core.runs.job import Job
from regft_core.runs.records import merged_record
from regft_core.runs.run_phase import produce


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
        context.job = replace(context.job, keys=dict(keys))
        done.append(stored)
        if stored.result["status"] != "ok":
            error = f"phase '{phase.name}' failed: {stored.result['error']}"
            return _record(job, keys, done) | {"status": "failed", "error": error}
    return _record(job, keys, done) | {"status": "ok", "error": None}


def _record(job: Job, keys: dict[str, str], done: list[Any]) -> dict[str, Any]:
    steps = {stored.result["phase"]: stored.result.get("steps", 0) for stored in done}
    environment = done[-1].result["environment"] if done else None
    merged = merged_record(done)
    merged["marks"] += other_environments(environment, done)
    soups = {stored.result["phase"]: stored.result["soup"] for stored in done if "soup" in stored.result}
    return {
        "size": job.size,
        "seed": job.seed,
        "phases": keys,
        "phase_steps": steps,
        "environment": environment,
        **({"soups": soups} if soups else {}),
    } | merged

"""What processes of executors run in tests: functions that they import by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regft_core.catalogue import EXECUTORS
from regft_core.runs.context import Context
from regft_core.runs.job import Job

FOLDER = Path(__file__).parent / "elsewhere"


def on_host(function: Callable[..., Any], job: Any, *, device: str) -> Any:
    """``function`` of the job, where the executor's name is known (params.yaml has it)."""
    with EXECUTORS.also(FOLDER):
        return function(job, device=device)


def see(job: Job, *, device: str) -> Job:
    """What a job is told; in the place of training."""
    assert device == "cpu"
    return job


def identify(job: Job, *, device: str) -> tuple[str, str, str]:
    """Where a job found its project and run store, and the key of its run."""
    context = Context(job)
    return str(context.root), str(context.store.path), context.keys.of("finetune")

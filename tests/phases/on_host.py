"""What processes of executors run in tests: functions that they import by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.catalogue import EXECUTORS
from regft_core.phases.context import Context, Job

FOLDER = Path(__file__).parent / "elsewhere"


def on_host(function: Callable[..., Any], job: Any, *, device: str) -> Any:
    """``function`` of the job, where the executor's name is known (params.yaml has it)."""
    with EXECUTORS.also(FOLDER):
        return function(job, device=device)


@dataclass(frozen=True)
class Sent:
    """A job as an executor sends it."""

    job: Job


def see(what: Sent, *, device: str) -> Job:
    """What a job is told; in the place of training."""
    assert device == "cpu"
    return what.job


def identify(what: Sent, *, device: str) -> tuple[str, str, str]:
    """Where a job found its project and run store, and the key of its run."""
    context = Context(what.job)
    return str(context.root), str(context.store.path), context.key("finetune")

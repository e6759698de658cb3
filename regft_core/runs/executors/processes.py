"""Runs beside each other: fresh interpreters (spawn), ``workers_per_device`` for each device, each bound to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regft_core.runs.jobs import JobFailure
from regft_core.runs.pool import run_processes


def run(
    jobs: Sequence[Any],
    function: Callable[..., Any],
    *,
    devices: Sequence[str],
    workers_per_device: int,
    threads: int | None,
    succeeded: Callable[[int, Any], None],
    failures: list[JobFailure],
) -> None:
    """Share the jobs out; they, ``function`` (a module-level one) and the results travel between processes."""
    slots = [device for _ in range(workers_per_device) for device in devices][: len(jobs)]
    run_processes(jobs, function, slots, threads, succeeded, failures)

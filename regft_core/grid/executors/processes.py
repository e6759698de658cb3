"""Runs beside each other: fresh interpreters (spawn), ``workers_per_device`` for each device, each bound to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regft_core.grid.queue import JobQueue
from regft_core.grid.worker_pool import run_processes


def run(
    queue: JobQueue,
    function: Callable[..., Any],
    *,
    devices: Sequence[str],
    workers_per_device: int,
    threads: int | None,
    settings: Mapping[str, Any],
) -> None:
    """Share the jobs out; they, ``function`` (a module-level one) and the results travel between processes."""
    slots = [device for _ in range(workers_per_device) for device in devices][: len(queue)]
    run_processes(queue, function, slots, threads)

"""An executor for tests: while its processes run jobs, the project's folder (``$REGFT_TEST_PROJECT``) is away."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from regft_core.grid.queue import JobQueue
from regft_core.grid.worker_pool import run_processes
from tests.runs.on_host import on_host

REMOTE = True


def run(
    queue: JobQueue,
    function: Callable[..., Any],
    *,
    devices: Sequence[str],
    workers_per_device: int,
    threads: int | None,
    settings: Mapping[str, Any],
) -> None:
    """All jobs that may start now in one process of its own, until there are none."""
    project = Path(os.environ["REGFT_TEST_PROJECT"])
    away = project.with_name(f"{project.name}-is-away")
    while indices := [index for _ in range(queue.startable) if (index := queue.take()) is not None]:
        batch = JobQueue([queue.jobs[index] for index in indices])
        project.rename(away)
        try:
            run_processes(batch, partial(on_host, function), ["cpu"], threads)
        finally:
            away.rename(project)
        failed = {failure.index: (failure.message, failure.trace) for failure in batch.failures}
        for place, index in enumerate(indices):
            if place in failed:
                queue.failed(index, *failed[place])
            else:
                queue.succeeded(index, batch.results[place])

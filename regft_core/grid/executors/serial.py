"""All runs one after the other, in this process, on the first device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regft_core.grid.failures import describe_failure, torch_threads
from regft_core.grid.queue import JobQueue


def run(
    queue: JobQueue,
    function: Callable[..., Any],
    *,
    devices: Sequence[str],
    workers_per_device: int,
    threads: int | None,
    settings: Mapping[str, Any],
) -> None:
    """Run the jobs here; further devices and workers have nothing to do."""
    with torch_threads(threads):
        while (index := queue.take()) is not None:
            try:
                result = function(queue.jobs[index], device=devices[0])
            except Exception as error:
                queue.failed(index, *describe_failure(error))
            else:
                queue.succeeded(index, result)

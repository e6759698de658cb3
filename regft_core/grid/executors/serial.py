"""All runs one after the other, in this process, on the first device."""

from __future__ import annotations

from regft_core.grid.queue import JobQueue, Workers, attempt, torch_threads


def run(queue: JobQueue, workers: Workers) -> None:
    """Run the jobs here; further devices and workers have nothing to do."""
    with torch_threads(workers.threads):
        while (index := queue.take()) is not None:
            queue.report(index, attempt(workers.function, queue.jobs[index], workers.devices[0]))

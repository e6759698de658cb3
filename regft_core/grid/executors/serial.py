"""All runs one after the other, in this process, on the first device."""

from __future__ import annotations

from regft_core.grid.executors import JobQueue, attempt, torch_threads


def run(queue: JobQueue) -> None:
    with torch_threads(queue.threads):
        while (index := queue.take()) is not None:
            queue.report(index, attempt(queue.function, queue.jobs[index], queue.devices[0]))

"""All runs one after the other, in this process, on the first device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regft_core.runs.jobs import JobFailure, describe_failure, label, torch_threads


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
    """Run the jobs here; further devices and workers have nothing to do."""
    with torch_threads(threads):
        for index, job in enumerate(jobs):
            try:
                result = function(job, device=devices[0])
            except Exception as error:
                failures.append(JobFailure(index, label(index, job), *describe_failure(error)))
            else:
                succeeded(index, result)

"""How runs are spread over processes, devices and machines, one executor in each file of this folder.

A file has the executor's name, which ``execution.executor`` gives, and defines ::

    run(queue, function, *, devices, workers_per_device, threads, settings)

It takes jobs from the queue (``runs.queue.JobQueue``) as long as there are any: ``queue.take()`` is
the index of the one to start next, or None when none can start before another ends. For each it calls
``function(queue.jobs[index], device=...)`` once, with torch at ``threads`` threads
(``jobs.torch_threads``), on one of ``devices``, and reports here, in this process, by
``queue.succeeded(index, result)`` or, for a job that raised or whose process died,
``queue.failed(index, message, trace)``; the other jobs are finished all the same. It leaves no process
behind, also when it is interrupted. ``settings`` is the section of ``execution`` that has the executor's
name, for executors that have one.

Results do not depend on the executor, on the number of workers, or on the order in which jobs
end: every job sees the same number of threads, and nothing is passed between jobs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from regft_core.catalogue import EXECUTORS
from regft_core.errors import ConfigError, Problem
from regft_core.names import listing
from regft_core.runs.jobs import JobFailure, JobsFailed
from regft_core.runs.queue import JobQueue

__all__ = ["JobFailure", "JobsFailed", "run_all", "visible_devices"]

J = TypeVar("J")
R = TypeVar("R")


def _accelerator_driver() -> bool:
    """Whether a CUDA or ROCm driver can be loaded; without one torch sees no GPU either."""
    for name in ("libcuda.so.1", "nvcuda.dll", "libamdhip64.so"):
        with suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False


def visible_devices(device: str) -> list[str]:
    """Return the devices that ``execution.device`` means on this machine, at least one.

    ``auto``: all CUDA devices, or the CPU; ``cuda``: all CUDA devices; ``cuda:1``, ``mps`` and
    ``cpu``: that one. Raises ``ConfigError`` when it is not there (never falls back).
    """
    if device == "cpu" or (device == "auto" and not _accelerator_driver()):
        return ["cpu"]  # without importing torch: the parent of the workers needs it for nothing else
    import torch

    def absent(found: str) -> ConfigError:
        hint = f"{found}; choose one that is there, or auto"
        return ConfigError(
            [Problem("params.yaml", 0, "execution.device", f"{device} is not available on this machine", hint)]
        )

    if device == "mps":
        if not torch.backends.mps.is_available():
            raise absent("torch sees no MPS device")
        return ["mps"]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    every = [f"cuda:{i}" for i in range(count)]
    if device == "auto":
        return every or ["cpu"]
    if device == "cuda" and every:
        return every
    if device in every:
        return [device]
    raise absent(f"torch sees {', '.join(every) if every else 'no CUDA device'}")


def run_all(
    jobs: Sequence[J],
    function: Callable[..., R],
    *,
    executor: str = "serial",
    workers_per_device: int = 1,
    devices: Sequence[str] = ("cpu",),
    threads: int | None = None,
    settings: Mapping[str, Any] | None = None,
    after: Mapping[int, Collection[int]] | None = None,
    costs: Sequence[float] | None = None,
    on_result: Callable[[int, R], None] | None = None,
) -> list[R]:
    """Return ``[function(job, device=...) for job in jobs]``, in the order of ``jobs``.

    Args:
        jobs: passed to ``function`` one by one; an executor may send them, ``function`` (a
            module-level one) and the results from process to process.
        executor: name of a file of this folder.
        threads: torch threads of every job, whichever the executor, because sums on the CPU
            may depend on it. None leaves torch alone.
        settings: of the executor.
        after, costs: which jobs wait for which, and which start first; see ``JobQueue``.
        on_result: called here with (index, result) as each job ends.

    Raises:
        JobsFailed: a ``RunFailed``, when jobs raised or their process died; all other jobs are
            finished first. ``KeyboardInterrupt``, SIGTERM and SIGHUP kill all workers at once.
    """
    if executor not in EXECUTORS.names():
        raise ValueError(f"executor {executor!r}: choose one of {listing(EXECUTORS.names())}")
    if not devices or workers_per_device < 1:
        raise ValueError("at least one device and one worker per device are needed")
    queue = JobQueue(jobs, after=after, costs=costs, on_result=on_result)
    if jobs:
        EXECUTORS.load(executor).run(
            queue,
            function,
            devices=devices,
            workers_per_device=workers_per_device,
            threads=threads,
            settings=settings or {},
        )
    if queue.failures:
        raise JobsFailed(queue.failures, queue.results)
    return queue.results

"""How runs are spread over processes, devices and machines, one executor in each file of this folder.

A file has the executor's name, which ``execution.executor`` gives, and defines ::

    run(queue, function, *, devices, workers_per_device, threads, settings)

The contract, which ``tests/execution/test_executor_contract.py`` tries with every file of this folder:

- *Jobs.* As long as there are any, ``queue.take()`` (``execution.queue.JobQueue``) is the job to start next: an index,
  or None when none can start before another ends. Each job is one call ``function(queue.jobs[index], device=...)``,
  on one of ``devices``, with torch at ``threads`` threads (``failures.torch_threads``).
- *One job at a time in a process.* Random draws, kernels and threads are settings of a process in torch. A second
  training beside one that runs is refused (``execution.alone``), so a pool of threads cannot be an executor.
- *Results* are reported in the driver, the process that called ``run``, and from its thread:
  ``queue.succeeded(index, result)``, or ``queue.failed(index, message, trace)`` for a job that raised or whose
  process died (``failures.describe_failure``). The other jobs still finish. A job may be started again
  where its machine failed it; it then continues from its checkpoint.
- *Interruption.* ``run`` leaves no process and no job behind, also when SIGINT or SIGTERM interrupts it
  (``processes.termination_raises``).
- *Bits* do not depend on the executor, on the number of workers, or on the order in which jobs end: nothing is passed
  between jobs.

``settings`` is the section of ``execution`` that has the executor's name, for executors that have one. An executor
whose workers may be on other machines says ``REMOTE = True``: which devices there are is then asked where a run
starts (``devices.own_device``), not here. Its ``settings["shared"]`` is a folder that all machines see: the run store
where that lies outside of the project, else the project itself. A cluster that sees neither is told ``root`` (the
project), ``store`` and ``keys`` instead (``executors/ray.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from regft_core.catalogue import EXECUTORS
from regft_core.grid.failures import JobFailure, JobsFailed
from regft_core.grid.queue import JobQueue
from regft_core.models.devices import visible_devices
from regft_core.names import listing

__all__ = ["JobFailure", "JobsFailed", "is_remote", "run_all", "visible_devices"]

J = TypeVar("J")
R = TypeVar("R")


def is_remote(executor: str) -> bool:
    """Whether an executor's workers may be on other machines, whose devices nobody here can see."""
    return bool(getattr(EXECUTORS.load(executor), "REMOTE", False))


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

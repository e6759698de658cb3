"""How runs are spread over processes, devices and machines, one executor in each file of this folder.

A file has the executor's name, which ``execution.executor`` gives, and defines ::

    run(queue: JobQueue, workers: Workers)

The contract, which ``tests/execution/test_executor_contract.py`` tries with every file of this folder:

- *Jobs.* As long as there are any, ``queue.take()`` (``grid.queue.JobQueue``) is the job to start next: an index,
  or None when none can start before another ends. Each job is one call ``function(queue.jobs[index], device=...)``, on
  one of ``devices``, with torch at ``threads`` threads (``queue.torch_threads``), all of ``workers``.
- *One job at a time in a process.* Random draws, kernels and threads are settings of a process in torch. A second
  training beside one that runs is refused, so a pool of threads cannot be an executor.
- *Results* are reported in the driver, the process that called ``run``, and from its thread:
  ``queue.report(index, answer)`` with what ``queue.attempt`` returned where the job ran, or
  ``queue.failed(index, message)`` for a job whose process died. The other jobs still finish. A job may be started again
  where its machine failed it; it then continues from its checkpoint.
- *Interruption.* ``run`` leaves no process and no job behind, also when an exception interrupts it; SIGINT, SIGTERM and
  SIGHUP are exceptions (``processes.termination_raises``).
- *Bits* do not depend on the executor, on the number of workers, or on the order in which jobs end: nothing is passed
  between jobs.

An executor whose workers may be on other machines says ``REMOTE = True``: which devices there are is then asked where a
run starts (``devices.own_device``), not here. ``settings["shared"]`` of its workers is a folder that all machines see:
the run store where that lies outside of the project, else the project itself. A cluster that sees neither is told
``root`` (the project), ``store`` and ``keys`` instead (``executors/ray.py``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from regft_core.catalogue import EXECUTORS
from regft_core.errors import ConfigError, Problem
from regft_core.grid.queue import JobFailure, JobQueue, JobsFailed, Workers
from regft_core.grid.worker_processes import termination_raises
from regft_core.models.devices import visible_devices

__all__ = ["JobFailure", "JobsFailed", "is_remote", "require", "run_all", "visible_devices"]

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
    after: Sequence[Collection[int]] | None = None,
    costs: Sequence[float] | None = None,
    on_result: Callable[[int, R], None] | None = None,
) -> list[R]:
    """Return ``[function(job, device=...) for job in jobs]``, in the order of ``jobs``.

    Args:
        jobs, after, costs, on_result: see ``JobQueue``.
        executor: name of a file of this folder.
        function, devices, workers_per_device, threads, settings: see ``Workers``.

    Raises:
        JobsFailed: a ``RunFailed``, when jobs raised or their process died; all other jobs are
            finished first. ``KeyboardInterrupt``, SIGTERM and SIGHUP kill all workers at once.
    """
    queue = JobQueue(jobs, after=after, costs=costs, on_result=on_result)
    if jobs:
        with termination_raises():
            EXECUTORS.load(executor).run(queue, Workers(function, devices, workers_per_device, threads, settings or {}))
    if queue.failures:
        raise JobsFailed(queue.failures, queue.results)
    return queue.results


def require(package: str, extra: str, what: str) -> Any:
    """Import an optional ``package``, which ``pip install 'regft[extra]'`` brings.

    Raises ConfigError when it is not installed; ``what`` of the configuration needs it.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise  # it is there, but one of its own needs is not
        key, _, value = what.partition(": ")
        message = f"'{value}' needs the package '{package}', which is not installed"
        hint = f"in the project's environment: pip install -c constraints.txt -e '.[{extra}]'"
        raise ConfigError([Problem("package-missing", "params.yaml", 0, f"execution.{key}", message, hint)]) from error

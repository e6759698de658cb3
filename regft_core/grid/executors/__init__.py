"""How runs are spread over processes, devices and machines, one executor in each file of this folder.

A file has the executor's name, which ``execution.executor`` gives, and defines ::

    run(queue: JobQueue)

The contract, which ``tests/execution/test_executor_contract.py`` tries with every file of this folder:

- *Jobs.* As long as there are any, ``queue.take()`` is the job to start next: an index,
  or None when none can start before another ends. Each job is one call ``function(queue.jobs[index], device=...)``, on
  one of ``queue.devices``, with torch at ``queue.threads`` threads (``torch_threads``).
- *One job at a time in a process.* Random draws, kernels and threads are settings of a process in torch. A second
  training beside one that runs is refused, so a pool of threads cannot be an executor.
- *Results* are reported in the driver, the process that called ``run``, and from its thread:
  ``queue.report(index, answer)`` with what ``attempt`` returned where the job ran, or
  ``queue.failed(index, message)`` for a job whose process died. The other jobs still finish. A job may be started again
  where its machine failed it; it then continues from its checkpoint.
- *Interruption.* ``run`` leaves no process and no job behind, also when an exception interrupts it; SIGINT, SIGTERM and
  SIGHUP are exceptions (``termination_raises``).
- *Bits* do not depend on the executor, on the number of workers, or on the order in which jobs end: nothing is passed
  between jobs.

An executor whose workers may be on other machines says ``REMOTE = True``: which devices there are is then asked where a
run starts, which takes the first that the cluster shows it, not here. ``queue.settings["shared"]`` is a folder that all
machines see: the run store where that lies outside of the project, else the project itself. A cluster that sees neither
is told ``root`` (the project), ``store`` and ``keys`` instead (``executors/ray.py``).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from types import FrameType
from typing import Any, NoReturn, TypeVar

from regft_core.catalogue import EXECUTORS
from regft_core.errors import ConfigError, OutOfMemory, Problem, RegftError, RunFailed, StoreError

J = TypeVar("J")
R = TypeVar("R")
#: The part of the longest chain of jobs up to which a chain is short.
SHORT = 0.25


@dataclass(frozen=True)
class JobFailure:
    """Why one job has no result; ``trace`` is its traceback, or empty if its process died."""

    index: int
    job: str
    message: str
    trace: str = ""


class JobsFailed(RunFailed):
    """Some jobs ended with an error; ``results`` are those of the others, which were finished first."""

    def __init__(self, failures: Sequence[JobFailure], results: Sequence[Any]) -> None:
        self.failures, self.results = sorted(failures, key=lambda failure: failure.index), results
        lines = [f"{len(failures)} of {len(results)} runs ended with an error; the others are finished"]
        for failure in self.failures:
            lines += [f"  {failure.job}: {failure.message}", *(f"    | {line}" for line in failure.trace.splitlines())]
        lines.append("  -> what finished is kept: repeat the stage and only the failed runs are trained")
        super().__init__("jobs-failed", "\n".join(lines))


@dataclass(eq=False, repr=False)
class JobQueue:
    """Queue from which an executor takes jobs and to which it reports; used by one thread.

    Attributes:
        jobs, function: each job is one call ``function(job, device=...)`` of a module-level function; all are pickled.
        after: for each job the indices of those that must have ended before it starts, with a result or without.
        costs: time of each job, in any unit. Short chains of jobs start first, for early scores; then the longest.
        on_result: called with (index, result) as each job succeeds; ``on_failure`` as one fails.
        devices: on one of which each job runs; ``per_device``: jobs at a time on each.
        threads: of torch, for every job; None leaves torch alone.
        settings: the section of ``execution`` that has the executor's name.
    """

    jobs: Sequence[Any]
    function: Callable[..., Any]
    devices: Sequence[str] = ("cpu",)
    per_device: int = 1
    threads: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    after: Sequence[Collection[int]] | None = None
    costs: Sequence[float] | None = None
    on_result: Callable[[int, Any], None] = lambda index, result: None
    on_failure: Callable[[JobFailure], None] = lambda failure: None

    def __post_init__(self) -> None:
        self.results: list[Any] = [None] * len(self.jobs)
        self.failures: list[JobFailure] = []
        #: Of jobs that were not taken: those that must end before.
        self._open = {index: set(before) for index, before in enumerate(self.after or [()] * len(self.jobs))}
        costs = self.costs or [0.0] * len(self.jobs)
        self._chains = list(costs)
        for index in reversed([*TopologicalSorter(self._open).static_order()]):
            for before in self._open[index]:
                self._chains[before] = max(self._chains[before], costs[before] + self._chains[index])
        self._short = SHORT * max(self._chains, default=0.0)

    def take(self) -> int | None:
        """The index of the job to start next; None when none can start now (others may later)."""

        def order(index: int) -> tuple[bool, float, int]:
            chain, short = self._chains[index], self._chains[index] <= self._short
            return not short, chain if short else -chain, index

        index = min((index for index, before in self._open.items() if not before), key=order, default=None)
        if index is not None:
            del self._open[index]
        return index

    def report(self, index: int, answer: tuple[Any, ...]) -> None:
        """Take note of what ``attempt`` returned for a job; jobs that waited for it may start."""
        succeeded, *rest = answer
        if succeeded:
            (self.results[index],) = rest
            self.on_result(index, *rest)
        else:
            self.failures.append(JobFailure(index, getattr(self.jobs[index], "name", f"job {index}"), *rest))
            self.on_failure(self.failures[-1])
        for before in self._open.values():
            before.discard(index)

    def failed(self, index: int, message: str) -> None:
        """Take note that a job has no result and no traceback: its process died."""
        self.report(index, (False, message))


def is_remote(executor: str) -> bool:
    """Whether an executor's workers may be on other machines, whose devices nobody here can see."""
    return bool(getattr(EXECUTORS.load(executor), "REMOTE", False))


def run_all(jobs: Sequence[J], function: Callable[..., R], *, executor: str = "serial", **options: Any) -> list[R]:
    """Return ``[function(job, device=...) for job in jobs]``, in their order, with options of ``JobQueue``.

    Raises JobsFailed when jobs raised or their process died. SIGINT, SIGTERM and SIGHUP kill all workers at once.
    """
    queue = JobQueue(jobs, function, **options)
    if jobs:
        with termination_raises():
            EXECUTORS.load(executor).run(queue)
    if queue.failures:
        raise JobsFailed(queue.failures, queue.results)
    return queue.results


def require(package: str, executor: str) -> Any:
    """Import the package of an executor, which the extra of its name brings; raises ConfigError without it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise  # it is there, but one of its own needs is not
        message = f"'{executor}' needs the package '{package}', which is not installed"
        hint = f"in the project's environment: pip install -c constraints.txt -e '.[{executor}]'"
        problem = Problem("package-missing", "params.yaml", 0, "execution.executor", message, hint)
        raise ConfigError([problem]) from error


def attempt(function: Callable[..., Any], job: Any, device: str) -> tuple[Any, ...]:
    """Return (True, result) of one job, or (False, message, traceback); for ``JobQueue.report``."""
    try:
        return True, function(job, device=device)
    except Exception as error:
        return False, *describe_failure(error)


def describe_failure(error: Exception) -> tuple[str, str]:
    """Return (message, traceback); our own errors say what to do and need no traceback, a defect does."""
    if isinstance(error, RegftError):
        return str(error), ""
    return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))


def is_machine_fault(error: Exception) -> bool:
    """Whether the machine failed the job (memory, storage, its device), so that another attempt may succeed."""
    torch = sys.modules.get("torch")  # not imported for the sake of an error that it cannot have raised
    # Outside of the training loop, which has an error of its own for it, memory runs out as torch says it.
    kinds = (getattr(torch, name, OSError) for name in ("OutOfMemoryError", "AcceleratorError"))
    return isinstance(error, (OutOfMemory, StoreError, OSError, MemoryError, *kinds))


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Give torch and BLAS ``threads`` threads inside the block; None changes (and imports) nothing."""
    if threads is None:
        yield
        return
    import scipy.linalg  # noqa: F401  a BLAS that is loaded later has as many threads as there are cores
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, "blas"):
            yield
    finally:
        torch.set_num_threads(before)


def die_with_parent(parent: int | None = None) -> None:
    """Arrange that this process is killed when its ``parent`` (a process id) ends, even before this call.

    Linux does it by itself (bound to the parent's *thread* that started us); elsewhere a thread looks.
    """
    expected = os.getppid() if parent is None else parent
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    else:
        threading.Thread(target=_watch, args=(expected,), daemon=True, name="parent watch").start()
    if os.getppid() != expected:
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Terminated(SystemExit):
    """SIGTERM or SIGHUP arrived while workers were running; exits with 128 + the signal's number."""


@contextmanager
def termination_raises() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into ``Terminated`` inside the block, unless one is ignored (``nohup``)."""

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # handlers belong to the main thread; the workers still die with their parent
        return
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, terminate) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Jobs with their order: which may start now, which of them first, and what became of each; failures in words."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from regft_core.errors import OutOfMemory, RegftError, RunFailed, StoreError

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
    """Some jobs ended with an error; the others were finished first.

    ``failures`` says which and why, ``results`` has the others' results (None at the failed).
    """

    def __init__(self, failures: Sequence[JobFailure], results: Sequence[Any]) -> None:
        self.failures, self.results = sorted(failures, key=lambda failure: failure.index), list(results)
        lines = [f"{len(self.failures)} of {len(self.results)} runs ended with an error; the others are finished"]
        for failure in self.failures:
            lines += [f"  {failure.job}: {failure.message}", *(f"    | {line}" for line in failure.trace.splitlines())]
        lines.append("  -> what finished is kept: repeat the stage and only the failed runs are trained")
        super().__init__("jobs-failed", "\n".join(lines))


class JobQueue:
    """Queue from which an executor takes jobs and to which it reports; used by one thread.

    Args:
        jobs: sent to workers one by one.
        after: for each job the indices of those that must have ended before it starts, with a result or without.
        costs: how long each job takes, in any unit. Short chains of jobs start first, the shortest foremost: their
            scores are there while the others run. Then the longest, so that no long one is left over at the end;
            without costs in order.
        on_result: called with (index, result) as each job succeeds.

    Raises ``ValueError`` when jobs wait for each other in a circle.
    """

    def __init__(
        self,
        jobs: Sequence[Any],
        *,
        after: Sequence[Collection[int]] | None = None,
        costs: Sequence[float] | None = None,
        on_result: Callable[[int, Any], None] | None = None,
    ) -> None:
        self.jobs, self._on_result = jobs, on_result
        self.results: list[Any] = [None] * len(jobs)
        self.failures: list[JobFailure] = []
        #: Of jobs that were not taken: those that must end before.
        self._open = {index: set(before) for index, before in enumerate(after or [()] * len(jobs))}
        costs = costs or [0.0] * len(jobs)
        self._chains = list(costs)
        for index in reversed([*TopologicalSorter(self._open).static_order()]):
            for before in self._open[index]:
                self._chains[before] = max(self._chains[before], costs[before] + self._chains[index])
        self._short = SHORT * max(self._chains, default=0.0)

    @property
    def startable(self) -> int:
        """How many jobs could start now."""
        return sum(not before for before in self._open.values())

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
        """Take note of what ``attempt`` returned for a job; jobs that waited for it may start.

        Where it has no result they make what they lack themselves.
        """
        succeeded, *rest = answer
        if succeeded:
            (self.results[index],) = rest
            if self._on_result is not None:
                self._on_result(index, *rest)
        else:
            self.failures.append(JobFailure(index, getattr(self.jobs[index], "name", f"job {index}"), *rest))
        for before in self._open.values():
            before.discard(index)

    def failed(self, index: int, message: str) -> None:
        """Take note that a job has no result and no traceback: its process died."""
        self.report(index, (False, message))


# ---------------------------------------------------------------------------- for executors


@dataclass(frozen=True)
class Workers:
    """Where and how an executor computes jobs.

    Attributes:
        function: called as ``function(job, device=...)`` for each job; a module-level one, which may go with the jobs
            and the results from process to process.
        devices: on one of which each job runs.
        per_device: jobs at a time on each device.
        threads: of torch, for every job, since sums on the CPU may depend on it; None leaves torch alone.
        settings: the section of ``execution`` that has the executor's name.
    """

    function: Callable[..., Any]
    devices: Sequence[str]
    per_device: int
    threads: int | None
    settings: Mapping[str, Any]


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
    """Whether the machine failed the job (memory, storage, its device), so that another attempt may succeed.

    A run that failed by itself (its loss diverged) and a defect would fail again.
    """
    if isinstance(error, OutOfMemory | StoreError | OSError | MemoryError):
        return True
    torch = sys.modules.get("torch")  # not imported for the sake of an error that it cannot have raised
    # Outside of the training loop, which has an error of its own for it, memory runs out as torch says it.
    kinds = [getattr(torch, name, None) for name in ("OutOfMemoryError", "AcceleratorError")]
    return isinstance(error, tuple(kind for kind in kinds if kind is not None))


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

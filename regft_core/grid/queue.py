"""Jobs with their order: which may start now, which of them first, and what became of each."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from regft_core.grid.failures import JobFailure, label


class JobQueue:
    """What an executor takes jobs from and reports to; used by one thread.

    Args:
        jobs: sent to workers one by one.
        after: index of a job -> indices of those that must have succeeded before it starts.
        costs: how long each job takes, in any unit. The job with the longest chain of jobs behind it
            starts first, so that no long one is left over at the end; without costs they start in order.
        on_result: called with (index, result) as each job succeeds.

    Raises ``ValueError`` when jobs wait for each other in a circle.
    """

    def __init__(
        self,
        jobs: Sequence[Any],
        *,
        after: Mapping[int, Collection[int]] | None = None,
        costs: Sequence[float] | None = None,
        on_result: Callable[[int, Any], None] | None = None,
    ) -> None:
        self.jobs = jobs
        self.results: list[Any] = [None] * len(jobs)
        self.failures: list[JobFailure] = []
        self._on_result = on_result
        self._waits = {index: set(before) for index, before in (after or {}).items() if before}
        self._next: dict[int, list[int]] = {}
        for index, before in self._waits.items():
            for earlier in before:
                self._next.setdefault(earlier, []).append(index)
        self._urgency = self._chains(costs or [0.0] * len(jobs))
        self._ready = [(-self._urgency[i], i) for i in range(len(jobs)) if i not in self._waits]
        heapq.heapify(self._ready)

    def _chains(self, costs: Sequence[float]) -> list[float]:
        """Cost of each job together with the longest chain that waits for it."""
        open_before = {index: len(before) for index, before in self._waits.items()}
        order = [index for index in range(len(self.jobs)) if index not in open_before]
        for index in order:  # grows meanwhile
            for later in self._next.get(index, ()):
                open_before[later] -= 1
                if open_before[later] == 0:
                    order.append(later)
        if len(order) < len(self.jobs):
            raise ValueError("some jobs wait for each other in a circle")
        chains = [0.0] * len(self.jobs)
        for index in reversed(order):
            chains[index] = costs[index] + max((chains[later] for later in self._next.get(index, ())), default=0.0)
        return chains

    def __len__(self) -> int:
        """How many jobs there are in all."""
        return len(self.jobs)

    @property
    def startable(self) -> int:
        """How many jobs could start now."""
        return len(self._ready)

    def take(self) -> int | None:
        """The index of the job to start next; None when none can start now (others may later)."""
        return heapq.heappop(self._ready)[1] if self._ready else None

    def succeeded(self, index: int, result: Any) -> None:
        """Take note of a job's result; jobs that waited for it may start."""
        self.results[index] = result
        if self._on_result is not None:
            self._on_result(index, result)
        for later in self._next.get(index, ()):
            waits = self._waits.get(later)
            if waits is None:
                continue
            waits.discard(index)
            if not waits:
                del self._waits[later]
                heapq.heappush(self._ready, (-self._urgency[later], later))

    def failed(self, index: int, message: str, trace: str = "") -> None:
        """Take note that a job has no result; jobs that wait for it, directly or not, have none either."""
        self.failures.append(JobFailure(index, self.name(index), message, trace))
        for later in self._next.get(index, ()):
            if self._waits.pop(later, None) is not None:
                self.failed(later, f"was not started, because it needs {self.name(index)}")

    def name(self, index: int) -> str:
        """What to call a job in messages."""
        return label(index, self.jobs[index])

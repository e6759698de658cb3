"""Seconds left of jobs, from their declared work and how long those that ended took."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import covariance, fmean, variance

#: Share of the work below which a pace is a guess.
ENOUGH = 0.02


class Pace:
    """What several workers still have to do.

    A job takes a fixed time (to load, evaluate and store) and a time for its declared work. Both are fitted to the
    jobs that ended. Before one ends, the time goes by the steps since the first that was seen: before it, a worker
    only loaded libraries.

    Args:
        work: job -> its declared work, in any unit.
    """

    def __init__(self, work: Mapping[str, float]) -> None:
        self._work = dict(work)
        self._all = sum(work.values())
        self._started: dict[str, float] = {}
        self._inside: dict[str, float] = {}
        #: When the first steps of a job were seen, and the share that was done then.
        self._first: dict[str, tuple[float, float]] = {}
        #: When a job's share last changed: between two steps nothing is known, and a step may take long.
        self._moved: dict[str, float] = {}
        self._took: list[tuple[float, float]] = []
        #: When workers became free that were not seen at work since.
        self._free: list[float] = []
        self._workers = 1

    def at_work(self, inside: Mapping[str, float], now: float) -> None:
        """Take note of the jobs at work, with the share that is done of each; one that ended meanwhile is left out."""
        inside = {job: share for job, share in inside.items() if job in self._work}
        for job in inside:
            if job not in self._started and (self._free or inside[job] > 0):
                self._started[job] = self._free.pop(0) if self._free else now
            if inside[job] > 0:
                self._first.setdefault(job, (now, inside[job]))
            if inside[job] != self._inside.get(job):
                self._moved[job] = now
        self._inside = dict(inside)
        self._workers = max(self._workers, len(inside))

    def ended(self, job: str, computed: bool, now: float) -> None:
        """Take note of a job that ended; one that was not ``computed`` took no time."""
        work = self._work.pop(job, 0.0)
        self._inside.pop(job, None)
        started = self._started.pop(job, None)
        if computed and started is None and self._free:
            started = self._free.pop(0)
        if computed and started is not None:
            self._took.append((work, now - started))
            self._free.append(now)
        elif not computed:
            self._all -= work

    def left(self, now: float) -> float | None:
        """Seconds until the last job ends; None when too little is done to tell."""
        found = self._fitted()
        if found is None:
            return None
        fixed, rate = found
        open_ = []
        for job, work in self._work.items():
            seconds = fixed + rate * work
            if job in self._started:
                own = rate * work * (1 - self._inside.get(job, 0.0))
                seconds = max(seconds - (now - self._started[job]), own)
            open_.append(seconds)
        return max(max(open_, default=0.0), sum(open_) / self._workers)

    def _fitted(self) -> tuple[float, float] | None:
        """(seconds of every job, seconds of one unit of work)."""
        if not self._took:
            seen = {job: first for job, first in self._first.items() if job in self._inside}
            done = sum(self._work[job] * (self._inside[job] - share) for job, (_, share) in seen.items())
            if done <= ENOUGH * self._all:
                return None
            return 0.0, sum(self._moved[job] - at for job, (at, _) in seen.items()) / done
        works, seconds = zip(*self._took)
        if len(works) > 2 and (spread := variance(works)) > 0:
            rate = max(0.0, covariance(works, seconds) / spread)
            fixed = fmean(seconds) - rate * fmean(works)
            if fixed > 0:
                return fixed, rate
        return 0.0, sum(seconds) / sum(works) if sum(works) else 0.0

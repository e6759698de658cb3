"""What executors share: how a job that failed is told, and how many threads torch has."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from regft_core.errors import RegftError, RunFailed


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
        self.failures = sorted(failures, key=lambda failure: failure.index)
        self.results = list(results)
        lines = [f"{len(self.failures)} of {len(self.results)} runs ended with an error; the others are finished"]
        for failure in self.failures:
            lines.append(f"  {failure.job}: {failure.message}")
            lines += [f"    | {line}" for line in failure.trace.rstrip().splitlines()]
        lines.append("  -> what finished is kept: repeat the stage and only the failed runs are trained")
        super().__init__("\n".join(lines))


def label(index: int, job: object) -> str:
    """Return what to call a job in messages: its ``name`` if it has one."""
    name = getattr(job, "name", None)
    return name if isinstance(name, str) else f"job {index}"


def describe_failure(error: Exception) -> tuple[str, str]:
    """Return (message, traceback); our own errors say what to do and need no traceback, a defect does."""
    if isinstance(error, RegftError):
        return str(error), ""
    return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Give torch ``threads`` threads inside the block; None changes (and imports) nothing."""
    if threads is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)

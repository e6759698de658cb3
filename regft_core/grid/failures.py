"""What executors share: how a job that failed is told, what may be tried again, and how many threads torch has."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from regft_core.errors import OutOfMemory, RegftError, RunFailed, StoreError


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
        super().__init__("jobs-failed", "\n".join(lines))


def label(index: int, job: object) -> str:
    """Return what to call a job in messages: its ``name`` if it has one."""
    name = getattr(job, "name", None)
    return name if isinstance(name, str) else f"job {index}"


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

"""What tests of executors run in other processes: functions that they import by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from regft_core.errors import RunFailed, StoreError
from regft_core.runs.opened_project import opened


def square(job: int, device: str) -> tuple[int, str]:
    return job * job, device


def settings_of_process(job: int, device: str) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")}


def process(job: int, device: str) -> int:
    return os.getpid()


def leader(job: int, device: str) -> tuple[int, bool]:
    """The process, and whether it leads a group."""
    time.sleep(0.05)
    return os.getpid(), os.getpgrp() == os.getpid()


def epochs(job: str, device: str) -> list[int]:
    """The process, and a setting of a project."""
    return [os.getpid(), opened(job).params.training.epochs]


def pid_or_raise(job: str, device: str) -> int:
    if job == "raise":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return os.getpid()


def sometimes(job: str, device: str) -> str:
    """``raise``: a defect; ``diverged``: a run that failed; ``storage FILE``: a machine fault, the first time."""
    what, _, note = job.partition(" ")
    if what == "raise":
        raise ValueError("broken on purpose")
    if what == "diverged":
        with Path(note).open("a") as file:
            file.write("x")
        raise RunFailed("not-finite", "the loss is not a number")
    if what == "storage" and not Path(note).exists():
        Path(note).touch()
        raise StoreError("cannot-read", "the disk is away")
    if what == "killed" and not Path(note).exists():
        Path(note).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return what

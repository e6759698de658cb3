"""What the contract of executors is tried with: real trainings of a tiny encoder, imported by name by every worker.

Torch is imported where something is trained, so that drivers and idle jobs start fast.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from regft_core.disk.canonical import sha256_json
from regft_core.errors import DataError, RunFailed, StoreError
from regft_core.grid.executors import JobsFailed, run_all
from regft_core.runs.context import opened
from regft_core.runs.store import RunStore

STEPS = 10


@dataclass(frozen=True)
class Job:
    """A training; ``what`` happens in the middle of it, the first time (a note beside the store says so)."""

    store: str
    seed: int
    what: str = ""

    @property
    def name(self) -> str:
        return f"seed {self.seed}"


@dataclass(frozen=True)
class Trained:
    """Hash of the weights, and how and where they were made."""

    seed: int
    weights: str
    device: str
    threads: int
    process: int


def run(job: Job, *, device: str) -> Trained:
    """Train, or find or resume the training, in the run store; see ``Job``."""
    if job.what == "stays":
        Path(f"{job.store}-{job.seed}").write_text(str(os.getpid()))
        time.sleep(600)
    if job.what == "defect":
        raise ValueError("broken on purpose")
    if job.what == "refused":
        raise DataError("column-missing", "no such column")
    import torch

    from regft_core.runs.training_run import outcome_tensors, train
    from tests.methods.chain import phase, runner

    identity: dict[str, Any] = {"seed": job.seed}
    with RunStore(job.store).open(sha256_json(identity), identity) as working:
        stored = working.finished
        if stored is None:
            inputs = runner(seed=job.seed).inputs(phase(max_steps=STEPS), {})
            done = train(inputs, checkpointer=working, checkpoint_seconds=0, progress=partial(_meanwhile, job))
            stored = working.commit({"steps": done.progression.step}, outcome_tensors(inputs, done, weights=True))
    return Trained(job.seed, stored.tensors_sha256("weights"), device, torch.get_num_threads(), os.getpid())


def _meanwhile(job: Job, step: int, *_: Any) -> None:
    with Path(job.store, f"steps-{job.seed}").open("a") as log:
        log.write(f"{step}\n")
    note = Path(job.store, f"{job.what}-{job.seed}")
    if step != 4 or not job.what or note.exists():
        return
    note.write_text(str(os.getpid()))
    if job.what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.what == "meets another":
        TRAINING.set()
        assert REFUSED.wait(60)


#: Threads of one process tell each other by these: a training has begun; another job was refused.
TRAINING, REFUSED = threading.Event(), threading.Event()


def beside(job: Job, *, device: str) -> Trained | None:
    """``run``; job 1 begins when the training of job 0 has, and lets it go on when it is refused, or has ended.

    ``loads``: job 1 only loads a model, as an evaluation does.
    """
    if job.seed == 0:
        return run(job, device=device)
    assert TRAINING.wait(60)
    try:
        if job.what == "loads":
            from regft_core.models.load import load_classifier
            from regft_core.schema import DropoutConfig
            from tests.methods.chain import runner

            source = runner().source
            load_classifier(source, kind="classification", labels=["a", "b"], dropout=DropoutConfig(), head_seed=0)
            return None
        return run(job, device=device)
    finally:
        REFUSED.set()


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


def main() -> None:
    """The driver as a process of its own: executor, options of ``run_all`` and jobs, the last two as JSON."""
    executor, options, jobs = sys.argv[1], json.loads(sys.argv[2]), [Job(*job) for job in json.loads(sys.argv[3])]
    try:
        run_all(jobs, run, executor=executor, **options)
    except JobsFailed as error:
        print(error)
        sys.exit(5)


if __name__ == "__main__":
    # Workers must find `run` under this name, not in `__main__`.
    from tests.execution import contract_jobs

    contract_jobs.main()

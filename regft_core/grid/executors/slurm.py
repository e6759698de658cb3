"""Runs as jobs of a Slurm cluster, through submitit: one array for all that may start at the same time.

A job that is preempted, or runs into its time limit, is queued again and continues from the run's checkpoint.
submitit leaves its scripts, logs and pickled calls (of this process and its own jobs only), which all machines must
see, in ``.regft-slurm/`` of the run store where that is shared, else of the project.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from regft_core.grid.executors import require
from regft_core.grid.processes import termination_raises
from regft_core.grid.queue import JobQueue, Workers, attempt, describe_failure, torch_threads
from regft_core.models.devices import own_device

REMOTE = True
FOLDER = ".regft-slurm"
#: Between two looks at the queue; submitit itself asks Slurm less often.
LOOK_SECONDS = 2.0


class Task:
    """One job: what the cluster calls, and what is queued again when it is preempted."""

    def __init__(self, function: Callable[..., Any], job: Any, wanted: str, threads: int | None) -> None:
        self.arguments = function, job, wanted, threads

    def __call__(self) -> tuple[Any, ...]:
        """(True, result) or (False, message, traceback)."""
        function, job, wanted, threads = self.arguments
        try:
            device = own_device(wanted)
        except Exception as error:
            return False, *describe_failure(error)
        with torch_threads(threads):
            return attempt(function, job, device)

    def checkpoint(self) -> Any:
        """Return what submitit queues again when a job is preempted: the same job; its run has checkpoints."""
        return require("submitit", "slurm", "executor: slurm").helpers.DelayedSubmission(self)


def run(queue: JobQueue, workers: Workers) -> None:
    """Submit the jobs and wait for them; ``workers.settings`` is ``SlurmConfig`` with the device that is wanted."""
    settings = workers.settings
    # Read by submitit when it is imported, here and in the jobs, which inherit it.
    os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", settings.get("signal", "USR2"))
    submitit = require("submitit", "slurm", "executor: slurm")
    executor = _executor(submitit, settings, workers.threads)
    open_jobs: dict[int, Any] = {}
    with termination_raises():
        try:
            while True:
                indices = [queue.take() for _ in range(queue.startable)]
                tasks = [
                    (index, Task(workers.function, queue.jobs[index], settings.get("device", "cpu"), workers.threads))
                    for index in indices
                    if index is not None
                ]
                if tasks:
                    with executor.batch():  # one array job
                        jobs = [executor.submit(task) for _, task in tasks]
                    open_jobs |= dict(zip((index for index, _ in tasks), jobs))
                if not open_jobs:
                    return
                ended = [index for index, job in open_jobs.items() if job.done()]
                for index in ended:
                    _collect(queue, index, open_jobs.pop(index))
                if not ended:
                    time.sleep(LOOK_SECONDS if settings.get("cluster") != "local" else 0.1)
        finally:
            for job in open_jobs.values():
                with suppress(Exception):  # the cluster does not answer; the jobs end by their time limit
                    job.cancel()


def _collect(queue: JobQueue, index: int, job: Any) -> None:
    try:
        answer = job.result()
    except Exception as error:  # submitit raises many types: no output, failed, cancelled, timed out too often
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        what = lines[0] if lines else type(error).__name__
        queue.failed(index, f"its job {job.job_id} ended as {job.state}: {what}; its log is {job.paths.stderr}")
    else:
        queue.report(index, answer)


def _executor(submitit: Any, settings: Mapping[str, Any], threads: int | None) -> Any:
    on_cpu = settings.get("device") in ("cpu", "mps")
    gpus = settings.get("gpus")
    local = settings.get("cluster") == "local"
    limits = {"slurm_max_num_timeout": settings.get("requeues", 10)}
    folder = Path(settings.get("shared") or Path.cwd()) / FOLDER / "%j"
    executor = submitit.AutoExecutor(folder=folder, cluster="local" if local else "slurm", **({} if local else limits))
    wanted: dict[str, Any] = {
        "name": "regft",
        "timeout_min": settings.get("minutes", 240),
        "cpus_per_task": settings.get("cpus") or threads or 1,
        "gpus_per_node": gpus if gpus is not None else (0 if on_cpu else 1),
        "mem_gb": settings.get("memory_gb", 16),
    }
    if not local:
        wanted |= {
            "slurm_partition": settings.get("partition"),
            "slurm_account": settings.get("account"),
            "slurm_array_parallelism": settings.get("at_once", 64),
            "slurm_signal_delay_s": 90,
            "slurm_setup": list(settings.get("setup") or ()) or None,
        }
    executor.update_parameters(**{name: value for name, value in wanted.items() if value is not None})
    return executor

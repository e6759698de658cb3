"""Runs as jobs of a Slurm cluster, through submitit: one array for all that may start at the same time.

A job that is preempted, or runs into its time limit, is queued again and continues from the run's checkpoint.
submitit's scripts, logs and pickled calls are in ``.regft-slurm/`` of the shared run store, else of the project.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from regft_core.grid.executors import JobQueue, attempt, require, torch_threads
from regft_core.models.devices import visible_devices

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
        with torch_threads(threads):
            return attempt(lambda job, device: function(job, device=visible_devices(device)[0]), job, wanted)

    def checkpoint(self) -> Any:
        """Return what submitit queues again when a job is preempted: the same job; its run has checkpoints."""
        return require("submitit", "slurm").helpers.DelayedSubmission(self)


def run(queue: JobQueue) -> None:
    """Submit the jobs and wait for them; ``queue.settings`` is ``SlurmConfig`` with the device that is wanted."""
    settings = queue.settings
    # Read by submitit when it is imported, here and in the jobs, which inherit it.
    os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", settings.get("signal", "USR2"))
    submitit = require("submitit", "slurm")
    executor, device = _executor(submitit, settings, queue.threads), settings.get("device", "cpu")
    submitted: dict[int, Any] = {}
    try:
        while True:
            if indices := list(iter(queue.take, None)):
                with executor.batch():  # one array job
                    for index in indices:
                        task = Task(queue.function, queue.jobs[index], device, queue.threads)
                        submitted[index] = executor.submit(task)
            if not submitted:
                return
            ended = [index for index, job in submitted.items() if job.done()]
            for index in ended:
                _collect(queue, index, submitted.pop(index))
            if not ended:
                time.sleep(LOOK_SECONDS if settings.get("cluster") != "local" else 0.1)
    finally:
        for job in submitted.values():
            with suppress(Exception):  # the cluster does not answer; the jobs end by their time limit
                job.cancel()


def _collect(queue: JobQueue, index: int, job: Any) -> None:
    try:
        answer = job.result()
    except Exception as error:  # submitit raises many types: no output, failed, cancelled, timed out too often
        what = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        queue.failed(index, f"its job {job.job_id} ended as {job.state}: {what}; its log is {job.paths.stderr}")
    else:
        queue.report(index, answer)


def _executor(submitit: Any, settings: Mapping[str, Any], threads: int | None) -> Any:
    local, gpus = settings.get("cluster") == "local", settings.get("gpus")
    if gpus is None:
        gpus = 0 if settings.get("device") in ("cpu", "mps") else 1
    folder = Path(settings.get("shared") or Path.cwd()) / FOLDER / "%j"
    limits = {} if local else {"slurm_max_num_timeout": settings.get("requeues", 10)}
    executor = submitit.AutoExecutor(folder=folder, cluster="local" if local else "slurm", **limits)
    wanted: dict[str, Any] = {
        "name": "regft",
        "timeout_min": settings.get("minutes", 240),
        "cpus_per_task": settings.get("cpus") or threads or 1,
        "gpus_per_node": gpus,
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

"""Runs as tasks of a Ray cluster: one that ``execution.ray.address`` names, else a local one for the time of the call.

Where the run store is a folder that all machines see (``store.path`` outside of the project), tasks run in the
project's folder. Else Ray copies project and code to each machine (its ``runtime_env``), a task gets the finished runs
that it starts from, and returns those that it made: both go through Ray's object store.

A lost worker or node, and a fault of the machine (memory, storage), start the run again, on another node if one is
available; it continues from its checkpoint where it finds that. A run that fails by itself (its loss diverged) is a
result, and a defect is reported once: neither is tried again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.errors import RunFailed, StoreError
from regft_core.grid.executors import require
from regft_core.grid.processes import termination_raises
from regft_core.grid.queue import JobQueue, Workers, describe_failure, is_machine_fault, torch_threads
from regft_core.models.devices import own_device
from regft_core.runs.code import package_root
from regft_core.runs.store import RunStore

REMOTE = True
#: How often the driver looks how many runs the cluster has room for.
LOOK_SECONDS = 5.0
#: What the processes of the workers must have from their start, as this process has it.
INHERITED = (
    *("TOKENIZERS_PARALLELISM", "CUBLAS_WORKSPACE_CONFIG", "THP_MEM_ALLOC_ENABLE", "MALLOC_TRIM_THRESHOLD_"),
    *("MALLOC_MMAP_MAX_", "HF_HUB_OFFLINE", "HF_HOME", "REGFT_MODELS"),
)
#: Folders of a project that no task reads.
NOT_SENT = [
    *("/.git", "/.dvc", "/.venv", "/reports", "/exports", "/fits", "/submissions", "/mlflow.db*", "/mlruns"),
    *("/mlartifacts*", "/dvc_plots", "/work/search", "/work/finetune", "/work/evaluate", "__pycache__"),
]
#: Below the copy of a project on a worker: a run store for each job, which another attempt of it finds again.
STORES = ".regft-jobs"


class MachineFault(Exception):
    """A run met a fault of its machine: another attempt, there or elsewhere, may succeed."""


def run(queue: JobQueue, workers: Workers) -> None:
    """Run the jobs as Ray tasks; see the module.

    ``workers.settings`` is ``RayConfig`` with the wanted device and, for a cluster that does not see the run store,
    ``root`` (the project), ``store`` (its run store) and ``keys`` (index of a job -> runs that it starts from).
    """
    ray = require("ray", "ray", "executor: ray")
    with termination_raises(), _connected(ray, workers.settings, workers.per_device, workers.threads):
        _Driver(ray, queue, workers).work()


@contextmanager
def _connected(ray: Any, settings: Mapping[str, Any], workers: int, threads: int | None) -> Iterator[None]:
    """Be connected to the cluster inside the block; a connection that was there before is used and stays."""
    if ray.is_initialized():
        yield
        return
    address = settings.get("address")
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment = {**inherited, "OMP_NUM_THREADS": str(threads or 1)}
    runtime: dict[str, Any] = {"env_vars": environment}
    if "root" in settings:
        os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"  # git ignores prepared rows and fetched encoders
        runtime |= {"working_dir": settings["root"], "excludes": [*NOT_SENT, *_store_in(settings)]}
        runtime |= {"py_modules": [str(package_root() / "regft_core")]}
    else:
        path = [str(package_root()), os.environ.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    # `address=None` would join any cluster that it finds on this host.
    options: dict[str, Any] = {"address": address or "local", "runtime_env": runtime}
    if address is None:
        cpus = settings.get("cpus") or threads or 1
        options |= {"num_cpus": max(1, round(cpus * workers)), "include_dashboard": False}
    try:
        ray.init(**options, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunFailed("ray-not-connected", _not_connected(address, error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def _store_in(settings: Mapping[str, Any]) -> list[str]:
    """Return the run store as a folder of the project, if it is one."""
    store, root = Path(settings["store"]), Path(settings["root"]).absolute()
    return [f"/{store.relative_to(root).as_posix()}"] if store.is_relative_to(root) else []


def _not_connected(address: str | None, error: Exception) -> str:
    if address is None:
        return (
            f"executor: ray: no cluster of this machine alone could be started: {error}\n    -> `executor: processes` "
            "does the same here without Ray; `execution: {ray: {address: host:port}}` names a cluster that is there"
        )
    return (
        f"execution.ray.address '{address}': Ray cannot connect: {error}\n    -> start the cluster, or remove "
        "the address for a local one; one that was made where a token is (~/.ray/auth_token, RAY_AUTH_TOKEN) wants "
        "it, and RAY_AUTH_MODE=token, here too: Ray's own lines above then say InvalidAuthToken (docs/scale.md)"
    )


def _work(
    function: Callable[..., Any], job: Any, wanted: str, threads: int | None, keys: Sequence[str] | None, *runs: Any
) -> tuple[Any, ...]:
    """Do one job, in a worker; returns (True, result, runs that it made) or (False, message, traceback).

    ``keys`` and ``runs`` are those that the job starts from; without ``keys`` the job finds its project and store in
    their own places. Raises ``MachineFault``.
    """
    try:
        with torch_threads(threads):
            if keys is None:
                return True, function(job, device=own_device(wanted)), {}
            return True, *_work_in_copy(function, job, wanted, dict(zip(keys, runs)))
    except Exception as error:
        if is_machine_fault(error):
            raise MachineFault(describe_failure(error)[0]) from None
        return False, *describe_failure(error)


def _work_in_copy(
    function: Callable[..., Any], job: Any, wanted: str, runs: Mapping[str, Mapping[str, bytes]]
) -> tuple[Any, dict[str, Mapping[str, bytes]]]:
    """Do one job in the copy of the project that Ray made; returns its result, and the runs that it made."""
    root = Path.cwd()
    store = RunStore(root / STORES / hashlib.sha256(job.name.encode()).hexdigest()[:16])
    for key, packed in runs.items():
        store.add(key, packed)
    result = function(replace(job, root=str(root), store=str(store.path), progress=None), device=own_device(wanted))
    made = ((key, store.pack(key)) for key in list(store.keys()) if key not in runs)
    return result, {key: packed for key, packed in made if packed is not None}


class _Driver:
    """Submits, waits, and counts attempts."""

    def __init__(self, ray: Any, queue: JobQueue, workers: Workers) -> None:
        self.ray, self.queue, self.threads = ray, queue, workers.threads
        self.function, settings = workers.function, workers.settings
        self.wanted = settings.get("device", "cpu")
        self.cpus = float(settings.get("cpus") or workers.threads or 1)
        self.gpus = self._gpus(settings.get("gpus"), workers.per_device)
        self.retries = int(settings.get("retries", 3))
        #: The run store that the workers do not see; None where they do.
        self.store = RunStore(settings["store"]) if "root" in settings else None
        self.keys: Mapping[int, Collection[str]] = settings.get("keys") or {}
        #: Key -> the run in Ray's object store.
        self.sent: dict[str, Any] = {}
        #: Task -> index of its job.
        self.open: dict[Any, int] = {}
        options = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.retries}
        # Not by `.options()`: only a GPU that is declared here makes Ray end a worker with its task. One that goes on
        # would keep the memory, and the GPU, that its first task was given.
        self.task = ray.remote(**options, retry_exceptions=[MachineFault])(_work)

    def _gpus(self, wished: float | None, workers: int) -> float:
        if wished is not None:
            return wished
        there = self.ray.cluster_resources().get("GPU", 0) > 0
        if self.wanted in ("cpu", "mps") or (self.wanted == "auto" and not there):
            return 0.0
        return 1.0 / workers

    def room(self) -> int:
        """Runs that the cluster, as it is now, can work on at once: no more are submitted, so that the longest stay
        first."""
        there = self.ray.cluster_resources()
        room = there.get("CPU", 0.0) / self.cpus
        if self.gpus:
            room = min(room, there.get("GPU", 0.0) / self.gpus)
        return max(1, int(room + 1e-9))

    def submit(self, index: int) -> None:
        keys = self._send(self.keys.get(index, ())) if self.store is not None else None
        runs = [self.sent[key] for key in keys or ()]
        task = self.task.remote(self.function, self.queue.jobs[index], self.wanted, self.threads, keys, *runs)
        self.open[task] = index

    def _send(self, keys: Collection[str]) -> list[str]:
        """Put finished runs into Ray's object store; returns the keys of those that there are."""
        assert self.store is not None
        for key in keys:
            if key not in self.sent and (packed := self.store.pack(key)) is not None:
                self.sent[key] = self.ray.put(packed)
        return [key for key in keys if key in self.sent]

    def work(self) -> None:
        while True:
            room = self.room()
            while len(self.open) < room and (index := self.queue.take()) is not None:
                self.submit(index)
            if not self.open:
                return
            done, _ = self.ray.wait(list(self.open), num_returns=1, timeout=LOOK_SECONDS)
            for task in done:
                self.collect(task)

    def collect(self, task: Any) -> None:
        index = self.open.pop(task)
        try:
            succeeded, *answer = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            what = f"{cause}" if isinstance(cause, MachineFault) else f"its worker or node was lost: {_first(error)}"
            self.queue.failed(index, f"{what} (attempts: {self.retries + 1})")
            return
        if not succeeded:
            self.queue.failed(index, *answer)
            return
        result, runs = answer
        try:
            if self.store is not None:
                for key, packed in runs.items():
                    self.store.add(key, packed)
        except StoreError as error:
            self.queue.failed(index, str(error))
        else:
            self.queue.succeeded(index, result)


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__

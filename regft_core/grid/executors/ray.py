"""Runs as tasks of a Ray cluster: one that ``execution.ray.address`` names, else a local one for the time of the call.

Where all machines see the run store (``store.path`` outside of the project), tasks run in the project's folder. Else
Ray copies project and code to each machine, and finished runs go to and from a task through Ray's object store.
A lost worker or node and a fault of the machine (memory, storage) start a run again; its own failure does not.
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
from regft_core.grid.executors import JobQueue, describe_failure, is_machine_fault, require, torch_threads
from regft_core.models.devices import visible_devices
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
    """A fault of the machine, after which Ray makes another attempt."""


def run(queue: JobQueue) -> None:
    """Run the jobs as Ray tasks; ``queue.settings`` is ``RayConfig`` with what the package's docstring names."""
    ray = require("ray", "ray")
    with _connected(ray, queue):
        _Driver(ray, queue).work()


@contextmanager
def _connected(ray: Any, queue: JobQueue) -> Iterator[None]:
    """Be connected to the cluster inside the block; a connection that was there before is used and stays."""
    if ray.is_initialized():
        yield
        return
    settings, threads = queue.settings, queue.threads
    address = settings.get("address")
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment["OMP_NUM_THREADS"] = str(threads or 1)
    runtime: dict[str, Any] = {"env_vars": environment}
    if "root" in settings:
        root, store = Path(settings["root"]).absolute(), Path(settings["store"])
        os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"  # git ignores prepared rows and fetched encoders
        inside = [f"/{store.relative_to(root).as_posix()}"] if store.is_relative_to(root) else []
        runtime |= {"working_dir": str(root), "excludes": [*NOT_SENT, *inside]}
        runtime |= {"py_modules": [str(package_root() / "regft_core")]}
    else:
        path = [str(package_root()), os.environ.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    # `address=None` would join any cluster that it finds on this host.
    options: dict[str, Any] = {"address": address or "local", "runtime_env": runtime}
    if address is None:
        cpus = settings.get("cpus") or threads or 1
        options |= {"num_cpus": max(1, round(cpus * queue.per_device)), "include_dashboard": False}
    try:
        ray.init(**options, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        what = "executor: ray: no cluster of this machine alone could be started"
        hint = "`executor: processes` does the same without Ray; `execution: {ray: {address: host:port}}` is a cluster"
        if address:
            what = f"execution.ray.address '{address}': Ray cannot connect"
            hint = "start the cluster, or remove the address for a local one; one that wants a token (RAY_AUTH_TOKEN, "
            hint += "~/.ray/auth_token) wants RAY_AUTH_MODE=token here too (docs/scale.md)"
        raise RunFailed("ray-not-connected", f"{what}: {error}\n    -> {hint}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _work(
    function: Callable[..., Any], job: Any, wanted: str, threads: int | None, keys: Sequence[str] | None, *runs: Any
) -> tuple[Any, ...]:
    """Do one job, in a worker; returns (True, result, runs that it made) or (False, message, traceback)."""
    try:
        with torch_threads(threads):
            if keys is None:
                return True, function(job, device=visible_devices(wanted)[0]), {}
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
    job = replace(job, root=str(root), store=str(store.path), progress=None)
    result = function(job, device=visible_devices(wanted)[0])
    files = ((key, store.pack(key)) for key in list(store.keys()))
    # A run that came without its tensors and has them now is sent back, too.
    return result, {key: packed for key, packed in files if packed and packed.keys() != runs.get(key, {}).keys()}


class _Driver:
    def __init__(self, ray: Any, queue: JobQueue) -> None:
        self.ray, self.queue, self.threads = ray, queue, queue.threads
        self.function, settings = queue.function, queue.settings
        self.wanted = settings.get("device", "cpu")
        self.cpus, self.gpus = float(settings.get("cpus") or queue.threads or 1), settings.get("gpus")
        if self.gpus is None:
            here = ray.cluster_resources().get("GPU", 0) > 0
            without = self.wanted in ("cpu", "mps") or (self.wanted == "auto" and not here)
            self.gpus = 0.0 if without else 1.0 / queue.per_device
        self.retries = int(settings.get("retries", 3))
        #: The run store that the workers do not see; None where they do.
        self.store = RunStore(settings["store"]) if "root" in settings else None
        self.keys: Sequence[Collection[str]] = settings.get("keys") or ()
        #: Key -> the run in Ray's object store.
        self.sent: dict[str, Any] = {}
        #: Task -> index of its job.
        self.open: dict[Any, int] = {}
        options = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.retries}
        # Not by `.options()`: only a GPU that is declared here makes Ray end a worker with its task. One that goes on
        # would keep the memory, and the GPU, that its first task was given.
        self.task = ray.remote(**options, retry_exceptions=[MachineFault])(_work)

    def room(self) -> int:
        """Runs that the cluster can work on at once now: no more are submitted, so that the longest stay first."""
        resources = self.ray.cluster_resources()
        room = resources.get("CPU", 0.0) / self.cpus
        if self.gpus:
            room = min(room, resources.get("GPU", 0.0) / self.gpus)
        return max(1, int(room + 1e-9))

    def submit(self, index: int) -> None:
        """Start a job, with the finished runs that it starts from in Ray's object store where it does not see them."""
        keys: list[str] | None = None
        if self.store is not None:
            for key in self.keys[index]:
                if key not in self.sent and (packed := self.store.pack(key)) is not None:
                    self.sent[key] = self.ray.put(packed)
            keys = [key for key in self.keys[index] if key in self.sent]
        runs = [self.sent[key] for key in keys or ()]
        task = self.task.remote(self.function, self.queue.jobs[index], self.wanted, self.threads, keys, *runs)
        self.open[task] = index

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
            if succeeded and self.store is not None:
                for key, packed in answer[1].items():
                    self.store.add(key, packed)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            what = f"{cause}" if isinstance(cause, MachineFault) else f"its worker or node was lost: {lines[0]}"
            self.queue.failed(index, f"{what} (attempts: {self.retries + 1})")
        except StoreError as error:
            self.queue.failed(index, str(error))
        else:
            self.queue.report(index, (True, answer[0]) if succeeded else (False, *answer))

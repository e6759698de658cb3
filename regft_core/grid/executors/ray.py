"""Runs as tasks of a Ray cluster: one that ``execution.ray.address`` names, else a local one for the time of the call.

Jobs and results are small; weights, checkpoints and predictions go through the run store, which all machines must
share, or its copy on object storage. A lost worker or node, and a fault of the machine (memory, storage), start the
run again, on another node if one is available; it continues from its checkpoint. A run that fails by itself (its loss
diverged) is a result, and a defect is reported once: neither is tried again. Ray does not notice every frozen node,
hence the deadline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from regft_core.errors import RunFailed
from regft_core.grid.extras import require
from regft_core.grid.failures import describe_failure, is_machine_fault, torch_threads
from regft_core.grid.processes import termination_raises
from regft_core.grid.queue import JobQueue
from regft_core.models.devices import own_device
from regft_core.runs.code import package_root

REMOTE = True
#: How often the driver looks whether a run is past its deadline.
LOOK_SECONDS = 5.0
#: What the processes of the workers must have from their start, as this process has it.
INHERITED = (
    *("TOKENIZERS_PARALLELISM", "CUBLAS_WORKSPACE_CONFIG", "THP_MEM_ALLOC_ENABLE", "MALLOC_TRIM_THRESHOLD_"),
    *("MALLOC_MMAP_MAX_", "HF_HUB_OFFLINE", "HF_HOME", "REGFT_MODELS", "REGFT_CACHE"),
)


class MachineFault(Exception):
    """A run met a fault of its machine: another attempt, there or elsewhere, may succeed."""


def run(
    queue: JobQueue,
    function: Callable[..., Any],
    *,
    devices: Sequence[str],
    workers_per_device: int,
    threads: int | None,
    settings: Mapping[str, Any],
) -> None:
    """Run the jobs as Ray tasks; see the module. ``settings`` is ``RayConfig`` with the device that is wanted."""
    ray = require("ray", "ray", "executor: ray")
    with termination_raises(), _connected(ray, settings, workers_per_device, threads):
        _Driver(ray, queue, function, workers_per_device, threads, settings).work()


@contextmanager
def _connected(ray: Any, settings: Mapping[str, Any], workers: int, threads: int | None) -> Iterator[None]:
    """Be connected to the cluster inside the block; a connection that was there before is used and stays."""
    if ray.is_initialized():
        yield
        return
    address = settings.get("address")
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    path = os.pathsep.join(filter(None, [str(package_root()), os.environ.get("PYTHONPATH")]))
    environment = {**inherited, "OMP_NUM_THREADS": str(threads or 1), "PYTHONPATH": path}
    # `address=None` would join any cluster that it finds on this host.
    given: dict[str, Any] = {"address": address or "local", "runtime_env": {"env_vars": environment}}
    if address is None:
        cpus = settings.get("cpus") or threads or 1
        given |= {"num_cpus": max(1, round(cpus * workers)), "include_dashboard": False}
    try:
        ray.init(**given, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunFailed("ray-not-connected", _not_connected(address, error)) from error
    try:
        yield
    finally:
        ray.shutdown()


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


def _work(function: Callable[..., Any], job: Any, wanted: str, threads: int | None) -> tuple[Any, ...]:
    """One job, in a worker: (True, result) or (False, message, traceback); raises ``MachineFault``."""
    try:
        with torch_threads(threads):
            return True, function(job, device=own_device(wanted))
    except Exception as error:
        if is_machine_fault(error):
            raise MachineFault(describe_failure(error)[0]) from None
        return False, *describe_failure(error)


class _Driver:
    """Submits, waits, and counts attempts."""

    def __init__(
        self,
        ray: Any,
        queue: JobQueue,
        function: Callable[..., Any],
        workers: int,
        threads: int | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.ray, self.queue, self.threads = ray, queue, threads
        self.function = function
        self.wanted = settings.get("device", "cpu")
        self.cpus = float(settings.get("cpus") or threads or 1)
        self.gpus = self._gpus(settings.get("gpus"), workers)
        self.retries = int(settings.get("retries", 3))
        self.deadline = float(settings.get("deadline_minutes", 1440)) * 60
        #: Task -> (index of its job, since when it is there).
        self.open: dict[Any, tuple[int, float]] = {}
        #: Times that a job was given up as hung.
        self.given_up: dict[int, int] = {}
        options = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.retries}
        # Not by `.options()`: only a GPU that is declared here makes Ray end a worker with its task. One that goes on
        # would keep the memory, and the GPU, that its first task was given.
        self.task = ray.remote(**options, retry_exceptions=[MachineFault])(_work)

    def _gpus(self, given: float | None, workers: int) -> float:
        if given is not None:
            return given
        there = self.ray.cluster_resources().get("GPU", 0) > 0
        if self.wanted in ("cpu", "mps") or (self.wanted == "auto" and not there):
            return 0.0
        return 1.0 / workers

    def room(self) -> int:
        """Runs that the cluster, as it is now, can work on at once: no more are submitted, so that the deadline
        of a run begins when it starts and the longest runs stay first."""
        there = self.ray.cluster_resources()
        room = there.get("CPU", 0.0) / self.cpus
        if self.gpus:
            room = min(room, there.get("GPU", 0.0) / self.gpus)
        return max(1, int(room + 1e-9))

    def submit(self, index: int) -> None:
        task = self.task.remote(self.function, self.queue.jobs[index], self.wanted, self.threads)
        self.open[task] = index, time.monotonic()

    def work(self) -> None:
        while True:
            room = self.room()
            while len(self.open) < room and (index := self.queue.take()) is not None:
                self.submit(index)
            if not self.open:
                return
            done, _ = self.ray.wait(list(self.open), num_returns=1, timeout=min(LOOK_SECONDS, self.deadline))
            for task in done:
                self.collect(task)
            now = time.monotonic()
            for task in [task for task, (_, since) in self.open.items() if now - since > self.deadline]:
                self.give_up(task)

    def collect(self, task: Any) -> None:
        index, _ = self.open.pop(task)
        try:
            good, *answer = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            what = f"{cause}" if isinstance(cause, MachineFault) else f"its worker or node was lost: {_first(error)}"
            self.queue.failed(index, f"{what} (attempts: {self.retries + 1})")
        else:
            (self.queue.succeeded if good else self.queue.failed)(index, *answer)

    def give_up(self, task: Any) -> None:
        """Leave a task that takes too long; what it may still finish is found in the run store, or discarded there."""
        index, _ = self.open.pop(task)
        with suppress(Exception):  # a node that does not answer
            self.ray.cancel(task, force=True)
        self.given_up[index] = self.given_up.get(index, 0) + 1
        if self.given_up[index] > self.retries:
            minutes = f"{self.deadline / 60:g} min"
            self.queue.failed(
                index, f"took longer than execution.ray.deadline_minutes ({minutes}), each time it was tried"
            )
        else:
            self.submit(index)


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__

"""The sections ``execution`` and ``store``: where runs execute and where they are kept, which is in no run's key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from regft_core.catalogue import EXECUTORS
from regft_core.schema import ConsistentModel, Inconsistency, StrictModel, named_in

#: The name of a file of ``regft_core/grid/executors``.
Executor = Annotated[str, named_in(EXECUTORS)]


class RayConfig(StrictModel):
    """``execution.ray``: how runs are spread over a Ray cluster."""

    address: str | None = Field(
        None, min_length=1, description="of a cluster that is there (host:port or ray://...); without one, a local one"
    )
    cpus: float | None = Field(None, gt=0, description="CPUs that a run takes; by default execution.threads")
    gpus: float | None = Field(
        None,
        ge=0,
        description="GPUs, or the share of one, that a run takes; by default 1 / execution.workers, 0 on a CPU",
    )
    retries: int = Field(3, ge=0, description="times that a run is started again after its machine failed it")


class SlurmConfig(StrictModel):
    """``execution.slurm``: how runs become jobs of a Slurm cluster, through submitit."""

    cluster: Literal["slurm", "local"] = Field("slurm", description="local: plain processes of this machine, to try it")
    partition: str | None = Field(None, min_length=1)
    account: str | None = Field(None, min_length=1)
    cpus: int | None = Field(None, ge=1, description="CPUs that a run takes; by default execution.threads")
    gpus: int | None = Field(None, ge=0, description="GPUs that a run takes; by default 1, 0 on execution.device cpu")
    memory_gb: float = Field(16, gt=0)
    minutes: int = Field(240, ge=1, description="time limit of a job; a run that is not done by then is queued again")
    at_once: int = Field(64, ge=1, description="jobs of one array that may run at the same time")
    requeues: int = Field(10, ge=0, description="times that a job is queued again after a time-out or a preemption")
    signal: str = Field("USR2", pattern=r"^[A-Z0-9]+$", description="what the cluster sends before it preempts a job")
    setup: tuple[str, ...] = Field((), strict=False, description="shell lines of the job script before Python starts")


class ExecutionConfig(ConsistentModel):
    """Where and how runs execute.

    Nothing here is part of a run's key. Device and threads can change the last bits of a result: they are
    recorded with it, and one comparison mixes no two of them (``report.mixed_environments``).
    """

    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    executor: Executor = Field("serial", description="a file of regft_core/grid/executors")
    workers: int = Field(1, ge=1, le=64, description="worker processes per device")
    threads: int = Field(
        1, ge=1, le=256, description="CPU threads of one run; another number can change the last bits of a result"
    )
    checkpoint_seconds: float = Field(60.0, ge=0, description="time between checkpoints inside a run")
    deterministic: bool = Field(True, description="deterministic GPU kernels")
    tf32: bool = Field(
        False,
        description="CUDA devices multiply in TF32, three digits of fp32's seven; refused where it erases a method",
    )
    cuda_graphs: bool = Field(False, description="CUDA devices replay the recorded step where it is one plain pass")
    ray: RayConfig | None = Field(None, description="options of executor: ray")
    slurm: SlurmConfig | None = Field(None, description="options of executor: slurm")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        for name in ("tf32", "cuda_graphs"):
            if getattr(self, name) and self.device in ("cpu", "mps"):
                yield (
                    (name,),
                    f"{name} is for CUDA devices, but device is {self.device}; remove it, or set device: cuda",
                )
        for name in ("ray", "slurm"):
            if getattr(self, name) is not None and self.executor != name:
                message = f"has options of executor '{name}', but the executor is '{self.executor}'"
                yield (name,), f"{message}; remove them, or set executor: {name}"

    def settings(self) -> dict[str, Any]:
        """The options of the chosen executor, if it has a section of its own; defaults where that is left out."""
        sections: dict[str, type[StrictModel]] = {"ray": RayConfig, "slurm": SlurmConfig}
        if self.executor not in sections:
            return {}
        section = getattr(self, self.executor) or sections[self.executor]()
        return {**section.model_dump(mode="json"), "device": self.device}


class StoreConfig(StrictModel):
    """The run store, which keeps finished runs and resumes killed ones."""

    path: str = Field(".regft", min_length=1, description="may be shared storage outside the project")
    budget_gb: float | None = Field(None, gt=0, description="weights of the least recently used runs go first")

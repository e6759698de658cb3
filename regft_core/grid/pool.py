"""Jobs to processes: the executor of ``params.yaml``, the environment of its workers, and one job there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core import metrics
from regft_core.grid.executors import is_remote, run_all, visible_devices
from regft_core.grid.jobs import PlannedJob
from regft_core.models.devices import refuse_slow_bf16, take_device
from regft_core.runs.job import Job
from regft_core.runs.project import opened
from regft_core.runs.run import run
from regft_core.runs.trials import try_values
from regft_core.settings.files import project_root, store_path
from regft_core.settings.project import Project
from regft_core.settings.provenance import described

#: For training on a CPU under glibc: freed activations stay with the process, in huge pages. Handing
#: them back to the kernel costs page faults in every step; keeping them costs memory (figures: benchmarks/).
KEEP_FREED_MEMORY = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_MMAP_MAX_": "0",
}

#: What numpy's and torch's libraries read at import; without it numpy starts a thread for every core in every worker.
THREADS = "OMP_NUM_THREADS"


def run_on_executor(
    project: Project, jobs: Sequence[PlannedJob], on_result: Callable[[int, str], None], progress: str
) -> None:
    """Run jobs as ``execution`` says; raises as ``run_all``.

    Args:
        on_result: called with the index and the line of each job as it ends.
        progress: folder of the progress board.
    """
    opened.cache_clear()
    execution, settings = project.params.execution, dict(project.params.execution.settings())
    if is_remote(execution.executor):  # where other machines find the project and the runs: executors/__init__.py
        root, ray = project.root, execution.ray
        store, home = store_path(root, project.params).absolute(), project_root(root).absolute()
        if not Path(os.path.normpath(store)).is_relative_to(os.path.normpath(home)):
            settings["shared"] = str(store)
        elif ray is None or ray.address is None:
            settings["shared"] = str(root)
        else:
            settings |= {"root": str(root), "store": str(store), "keys": [planned.keys for planned in jobs]}
    run_all(
        [replace(planned.job, progress=progress) for planned in jobs],
        run_job,
        executor=execution.executor,
        workers_per_device=execution.workers,
        devices=prepared_devices(project),
        threads=execution.threads,
        settings=settings,
        after=[planned.after for planned in jobs],
        costs=[sum(planned.shares.values()) for planned in jobs],
        on_result=on_result,
    )


def prepared_devices(project: Project) -> list[str]:
    """The devices of ``params.yaml``, with the environment set up for the processes that train on them.

    Raises ConfigError where one is missing, or is slower in the precision that is asked for.
    """
    execution = project.params.execution
    # On other machines the devices are asked for where a run starts.
    remote = is_remote(execution.executor)
    devices = [execution.device] if remote else visible_devices(execution.device)
    phases = [phase for method in project.methods.values() for phase in method.phases]
    refuse_slow_bf16(devices, [project.params.training.precision, *(phase.training.precision for phase in phases)])
    # Libraries that read these at import, and an allocator that reads them at the start of a
    # process, must find them before the workers start.
    wanted = {"TOKENIZERS_PARALLELISM": "false", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    for name, value in (wanted | (KEEP_FREED_MEMORY if devices == ["cpu"] else {})).items():
        os.environ.setdefault(name, value)
    os.environ[THREADS] = str(execution.threads)
    return devices


#: How a run collapsed, in words.
COLLAPSED = {"constant": "the same answer to every row", "majority": "no better than a constant answer"}


def run_job(job: Job, *, device: str) -> str:
    """Do one job; returns the line to print for it. All else is in the run store."""
    project = opened(job.root)
    take_device(device)  # in whatever process: steps are recorded on the current GPU
    name = job.name
    if job.trial is not None:
        record = try_values(job, project, device=device)
        name += f" ({described(record['values'])})"
    else:
        records = run(job, project, device=device, until=job.until)
        record = records.get("evaluate") or records.get("finetune") or records["search"]
        if (values := job.values or records["search"].get("tuned", {}).get("values")) and not job.refit:
            name += f" (chosen: {described(values)})"
    return f"  {name}: {describe(record, project.tasks[job.task].primary)}"


def describe(record: Mapping[str, Any], primary: str) -> str:
    """Return what became of a trial or a run, for its line on the terminal: the score as tables show it."""
    if record["status"] != "ok":
        return f"FAILED: {record['error']}"
    factor = metrics.find(primary).factor
    if "sets" in record:
        judged = record["sets"].get("dev")  # a model of all rows has none
        score = f"{primary} {factor * judged['metrics'][primary]:.1f}" if judged else "done"
        return score + (f"  COLLAPSED ({COLLAPSED[record['collapsed']]})" if record["collapsed"] else "")
    if "score" in record:
        return f"{primary} {factor * record['score']:.1f} ({record['steps']} steps)"
    done = f"{record['steps']} steps" if record["steps"] else "solved"
    return f"{done} in {record['seconds']:.0f} s"

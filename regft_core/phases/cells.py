"""Runs all sizes and seeds of a method on a task through one pool of workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from regft_core.config.project import Project
from regft_core.errors import DataError, FactsChanged, RegftError
from regft_core.hooks.registry import discover
from regft_core.phases.carried import Sent, carry, run_where_found
from regft_core.phases.context import Context, Job
from regft_core.phases.outputs import read_runs
from regft_core.phases.phase_data import member_label
from regft_core.phases.project import open_project
from regft_core.phases.records import known_keys, tuned_values
from regft_core.progress import ProgressBoard
from regft_core.runs.devices import take_device
from regft_core.runs.executors import is_remote, run_all, visible_devices
from regft_core.runs.fingerprint import one_moment
from regft_core.runs.lookup import NotStored

#: For training on a CPU under glibc: freed activations stay with the process, in huge pages. Handing
#: them back to the kernel costs page faults in every step; keeping them costs memory (figures: benchmarks/).
KEEP_FREED_MEMORY = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_MMAP_MAX_": "0",
}

J = TypeVar("J", bound=Sent)
R = TypeVar("R")

#: A stage's function: takes a job, the record of the stage before (if there is one) and a device; returns a record.
Work = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """One run of one stage, as an executor sends it to a process."""

    job: Job
    function: Work
    before: dict[str, Any] | None

    def __str__(self) -> str:
        return self.job.name


#: The stage whose records a stage takes -> that stage.
STAGE_AFTER: dict[str | None, str] = {None: "search", "search": "finetune", "finetune": "evaluate"}
#: What fine-tuning starts from when no phase comes before it.
NOTHING_SEARCHED: dict[str, Any] = {"phases": {}, "phase_steps": {}, "marks": [], "status": "ok", "error": None}


def settle_kernels(job: Job, device: str) -> None:
    """Let a GPU compute as ``execution`` says, whatever ran in this process before, of which nothing stays there.

    Else an evaluation would have other bits in a process of its own than right after its training.
    """
    if device.startswith("cuda"):
        from regft_core.phases import training_run

        take_device(device)
        execution = open_project(Path(job.root)).params.execution
        training_run.make_deterministic(device, execution.deterministic, execution.tf32)


def call(what: Call, *, device: str) -> dict[str, Any]:
    """Run a stage's function on its job; see :class:`Call`."""
    settle_kernels(what.job, device)
    if what.before is None:
        return what.function(what.job, device=device)
    return what.function(what.job, what.before, device=device)


def run_cell(
    root: Path,
    function: Work,
    method: str,
    task: str,
    before: str | None = None,
    tuned: Mapping[tuple[str, int], dict[str, Any]] | None = None,
) -> tuple[Context, list[dict[str, Any]]]:
    """Run a stage's ``function`` for every size and seed of the grid, through one pool of workers.

    Args:
        before: the stage whose records the function takes (``search``, ``finetune``).
        tuned: (size, seed) -> what trials have chosen, for the first stage; it is added to the records.

    Runs that are in the store are taken from it here; the others go to the executor (without one, no torch is
    imported). Each run gets a line on the terminal when it ends. Records come in the order of the sizes, then of
    the seeds. They do not depend on the executor, the number of workers or the order in which runs end.
    """
    project = open_project(root)
    searches = before != "search" or bool(project.method(method, task).earlier) or bool(project.trials(method))
    written = read_runs(root, before, method, task) if before is not None and searches else {}
    runs = [(str(size), seed) for size in project.params.grid.sizes for seed in project.params.grid.seeds]
    stage = STAGE_AFTER[before]
    names = [Job(str(root), method, task, *run).run for run in runs]
    with ProgressBoard(f"{stage} {method} {task}", names, shares(project, method, task, stage)) as board:

        def ended(index: int, record: dict[str, Any]) -> None:
            computed = board.ended(names[index])
            print(describe(record, stage, computed=computed), flush=True)

        calls: list[Call] = []
        with one_moment():
            for size, seed in runs:
                record = _record_before(written, before, method, task, size, seed) if searches else NOTHING_SEARCHED
                keys = known_keys(record)
                values = tuned_values({"tuned": tuned[size, seed]} if tuned else record)
                job = Job(str(root), method, task, size, seed, values=values)
                _check_keys(project, job, keys)
                calls.append(Call(replace(job, keys=keys, progress=board.folder), function, record))
        records = records_of(project, calls, ended)
    if tuned:
        records = [found | {"tuned": tuned[found["size"], found["seed"]]} for found in records]
    context = Context(replace(calls[0].job, values=None), project=project)
    # What the next stage reads is pinned too; a store one may only read has no pins.
    context.store.prune(keep=[key for record in records for key in _needed_next(record)])
    return context, records


def records_of(
    project: Project, calls: Sequence[Call], ended: Callable[[int, dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """The record of every call, in their order: from the store, or computed; ``ended`` is told of each."""
    found: dict[int, dict[str, Any]] = {}

    def has(index: int, record: dict[str, Any]) -> None:
        ended(index, record)
        found[index] = record

    with one_moment():  # nothing is trained here: what all runs depend on is found out once
        for index, what in enumerate(calls):
            if (record := look_up(what)) is not None:
                has(index, record)
    if missing := [index for index in range(len(calls)) if index not in found]:
        run_on_executor(
            project, [calls[i] for i in missing], call, on_result=lambda place, record: has(missing[place], record)
        )
    return [found[index] for index in range(len(calls))]


def run_on_executor(project: Project, jobs: Sequence[J], function: Callable[..., R], **order: Any) -> None:
    """``run_all`` as ``execution`` has it; ``order`` (``on_result``, ``after``, ``costs``) is handed on.

    For workers that may be on other machines, what the jobs read is published first (``carried.py``).
    """
    execution = project.params.execution
    settings = execution.settings()
    work: Callable[..., R] = function
    if is_remote(execution.executor):
        carried = carry(project, [what.job for what in jobs])
        work = partial(run_where_found, function, carried)
        settings |= {"shared": carried.store}
    run_all(
        jobs,
        work,
        executor=execution.executor,
        workers_per_device=execution.workers,
        devices=prepared_devices(project),
        threads=execution.threads,
        settings=settings,
        **order,
    )


def look_up(what: Call) -> dict[str, Any] | None:
    """The record of a run that needs no computing, or None; imports no torch."""
    try:
        return call(replace(what, job=replace(what.job, stored_only=True, progress=None)), device="cpu")
    except (NotStored, RegftError):
        return None  # computed, or refused with all that there is to say, where the executor runs it


def prepared_devices(project: Project) -> list[str]:
    """The devices of ``params.yaml``, with the environment set up for the processes that train on them."""
    execution = project.params.execution
    # On other machines the devices are asked for where a run starts.
    remote = is_remote(execution.executor)
    devices = [execution.device] if remote else visible_devices(execution.device)
    # Libraries that read these at import, and an allocator that reads them at the start of a
    # process, must find them before the workers start.
    wanted = {"TOKENIZERS_PARALLELISM": "false", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    for name, value in (wanted | (KEEP_FREED_MEMORY if devices == ["cpu"] else {})).items():
        os.environ.setdefault(name, value)
    return devices


def shares(project: Project, method: str, task: str, stage: str) -> dict[str, float]:
    """What a run of a stage goes through, in order, with its share of the work: passes over the shared batches."""
    own = project.method(method, task)
    phases = {"search": own.earlier, "finetune": (own.finetune,)}.get(stage)
    if phases is None:
        return {"evaluate": 1.0}
    registry = discover()
    return {
        member_label(phase, index if phase.repeat is not None else None): phase.ratio(registry)
        * (phase.training.max_steps or phase.training.epochs)
        for phase in phases
        for index in range(phase.members)
    }


def _check_keys(project: Project, job: Job, keys: dict[str, str]) -> None:
    """Refuse keys that are not those of this configuration: another run would be taken for this one.

    Raises FactsChanged: the files of the stage before are stale, edited, or of another project.
    """
    context = Context(job, project=project)
    for name, key in keys.items():
        if context.key(name) != key:
            raise FactsChanged(
                f"what was written down for phase '{name}' of {job.name} (key {key[:12]}) is not what it would be now "
                f"(key {context.key(name)[:12]}): code, configuration, rows or packages have changed since, or the "
                "files below work/ are of another project; run `dvc repro`"
            )


def _needed_next(record: dict[str, Any]) -> list[str]:
    """Keys whose weights the next stage reads: of the fine-tuned model, before it of the phases."""
    return [record["key"]] if record.get("key") else list(record.get("phases", {}).values())


def _record_before(
    written: dict[tuple[str, int], dict[str, Any]], before: str | None, method: str, task: str, size: str, seed: int
) -> dict[str, Any] | None:
    if before is None:
        return None
    if (size, seed) not in written:
        raise DataError(
            f"work/{before}/{method}/{task} has no size {size}, seed {seed}; run `dvc repro` (stage {before} first)"
        )
    return written[(size, seed)]


def describe(record: dict[str, Any], stage: str, *, computed: bool = True) -> str:
    """One line per seed for the terminal; ``computed``: it was not taken from the run store."""
    stored = "" if computed else "  (from the run store)"
    if record["status"] != "ok":
        return f"  {run_of(record)}: FAILED: {record['error']}"
    if stage == "evaluate":
        sets = ", ".join(
            f"{name} " + " ".join(f"{metric} {value:.3f}" for metric, value in found["metrics"].items())
            for name, found in record["sets"].items()
        )
        notes = ""
        if record["collapsed"].get("dev"):
            notes += f"  COLLAPSED ({record['collapsed']['dev']})"
        if weak := [name for name, what in record["collapsed"].items() if what and name != "dev"]:
            notes += f"  (not above the majority class on {', '.join(weak)})"
        return f"  {run_of(record)}: {sets}{notes}{stored}"
    loss = record["final_loss"]
    shown = "-" if loss is None else f"{loss:.4f}"
    return f"  {run_of(record)}: {record['steps']} steps in {record['seconds']:.0f} s, final loss {shown}{stored}"


def run_of(record: dict[str, Any]) -> str:
    """Rows and seed of a run, for its line on the terminal."""
    return f"{record['size']} rows, seed {record['seed']}"

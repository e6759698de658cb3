"""Runs all seeds of a cell through an executor."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regft_core.phases.context import Context, Job, open_project
from regft_core.progress import ProgressBoard
from regft_core.runs.executors import run_all, visible_devices

#: For training on a CPU under glibc: freed activations stay with the process, in huge pages. Handing
#: them back to the kernel costs page faults in every step; keeping them costs memory (figures: benchmarks/).
KEEP_FREED_MEMORY = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_MMAP_MAX_": "0",
}

#: A phase function: takes a job and a device, returns the record of one seed.
Phase = Callable[..., dict[str, Any]]


def run_cell(root: Path, phase: Phase, method: str, task: str, size: str) -> tuple[Context, list[dict[str, Any]]]:
    """Run ``phase`` for every seed of the grid; records come in the order of the seeds.

    Results do not depend on the executor, the number of workers or the order of the seeds.
    """
    project = open_project(root)
    execution = project.params.execution
    seeds = list(project.params.grid.seeds)
    devices = visible_devices(execution.device)
    # Libraries that read these at import, and an allocator that reads them at the start of a
    # process, must find them before the workers start.
    wanted = {"TOKENIZERS_PARALLELISM": "false", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    for name, value in (wanted | (KEEP_FREED_MEMORY if devices == ["cpu"] else {})).items():
        os.environ.setdefault(name, value)
    with ProgressBoard(f"{method} {task}-{size}", seeds) as board:
        jobs = [Job(str(root), method, task, size, seed, board.folder) for seed in seeds]
        records = run_all(
            jobs,
            phase,
            executor=execution.executor,
            workers_per_device=execution.workers,
            devices=devices,
            threads=execution.threads,
        )
    context = Context(Job(str(root), method, task, size, seeds[0]))
    keys = [record[name] for record in records for name in ("key", "search_key") if record.get(name)]
    context.store.prune(keep=keys)
    return context, records


def describe(record: dict[str, Any], phase: str) -> str:
    """One line per seed for the terminal."""
    if record["status"] != "ok":
        return f"  seed {record['seed']}: FAILED: {record['error']}"
    if phase == "evaluate":
        sets = ", ".join(
            f"{name} " + " ".join(f"{metric} {value:.3f}" for metric, value in found["metrics"].items())
            for name, found in record["sets"].items()
        )
        notes = ""
        if record["collapsed"].get("dev"):
            notes += f"  COLLAPSED ({record['collapsed']['dev']})"
        if weak := [name for name, what in record["collapsed"].items() if what and name != "dev"]:
            notes += f"  (not above the majority class on {', '.join(weak)})"
        return f"  seed {record['seed']}: {sets}{notes}"
    loss = record["final_loss"]
    shown = "-" if loss is None else f"{loss:.4f}"
    return f"  seed {record['seed']}: {record['steps']} steps in {record['seconds']:.0f} s, final loss {shown}"

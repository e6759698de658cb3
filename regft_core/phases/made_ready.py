"""Makes the outputs of the stages of a method on a task ahead, from runs that are all in the store; see ``ready``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regft_core.config.project import Project
from regft_core.errors import RegftError
from regft_core.io import scratch_directory, sweep_stale
from regft_core.phases.context import Context, Job
from regft_core.phases.no_search import fill_nothing_to_search
from regft_core.phases.outputs import write_evaluation, write_training
from regft_core.phases.project import kept_open, open_project
from regft_core.phases.ready import keep, shared_by_all, stamp
from regft_core.runs.fingerprint import one_moment

#: The records of one run by stage (search, if there is any, finetune, evaluate), or None when it is not all stored.
LookUp = Callable[[Job], list[dict[str, Any]] | None]


def make_ready(project: Project, method: str, task: str, look_up: LookUp) -> bool:
    """Write the outputs of search, finetune and evaluate for the stages to take; says whether it could.

    Nothing depends on it: a stage that finds nothing ready writes its output itself.
    """
    root = project.root
    records: dict[str, list[dict[str, Any]]] = {"search": [], "finetune": [], "evaluate": []}
    try:
        before = shared_by_all(root)
        with one_moment(), kept_open():
            project = open_project(root)  # as the stage will open it
            grid = project.params.grid
            jobs = [Job(str(root), method, task, str(size), seed) for size in grid.sizes for seed in grid.seeds]
            for job in jobs:
                found = look_up(job)
                if found is None:
                    return False
                for stage, record in zip(("search", "finetune", "evaluate")[-len(found) :], found):
                    records[stage].append(record)
        return _write(project, Context(replace(jobs[0], stored_only=True), project=project), records, before)
    except (RegftError, OSError):
        return False  # whatever it is, the stage itself meets it and says it


def _write(project: Project, context: Context, records: dict[str, list[dict[str, Any]]], before: str) -> bool:
    """Write the outputs; their stamps have the configuration and the code ``before`` the runs were looked up."""
    root, method, task = project.root, context.job.method, context.job.task
    ready = root / "work" / "ready"
    ready.mkdir(parents=True, exist_ok=True)
    sweep_stale(ready)
    with scratch_directory(ready, "making") as folder:
        places = {stage: folder / stage for stage in records}
        metrics = folder / "metrics.json"
        if records["search"]:
            write_training(context, "search", records["search"], places["search"])
        else:
            places["search"].mkdir()
            fill_nothing_to_search(places["search"])
        write_training(context, "finetune", records["finetune"], places["finetune"])
        write_evaluation(context, records["evaluate"], places["evaluate"], metrics)
        instead = {f"{stage}/{method}/{task}": place for stage, place in places.items()}
        stamps = {stage: stamp(root, stage, method, task, instead, before) for stage in places}
        for stage, place in places.items():
            if stage != "search" or records["search"]:  # the others' stages write theirs as fast
                content = metrics.read_bytes() if stage == "evaluate" else None
                keep(root, stage, method, task, stamps[stage], place, content)
    return True

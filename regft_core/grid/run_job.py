"""One job in whatever process an executor starts it: computed, or found in the run store, and told in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regft_core.models.devices import take_device
from regft_core.runs.context import Context
from regft_core.runs.job import Job
from regft_core.runs.phase import produce
from regft_core.runs.project import open_project
from regft_core.runs.run import run
from regft_core.runs.trials import try_values
from regft_core.settings.project import Project
from regft_core.settings.provenance import described

#: How a run collapsed, in words.
COLLAPSED = {"constant": "the same answer to every row", "majority": "no better than a constant answer"}


def run_job(job: Job, *, device: str) -> str:
    """Do one job; returns the line to print for it. All else is in the run store."""
    project = open_project(Path(job.root))
    settle_kernels(project, device)
    if job.phase is not None:
        context = Context(job, device, project)
        stored = produce(context, context.phase(job.phase), "weights" if job.weights else "result")
        if stored.result["status"] != "ok":
            return f"  {job.name}: FAILED: {stored.result['error']}"
        return f"  {job.name}: {stored.result['steps']} steps in {stored.result['seconds']:.0f} s"
    where = f"  {job.method} {job.task},"
    if job.trial is not None:
        return f"{where} {describe_trial(try_values(job, project, device=device)).strip()}"
    records = run(job, project, device=device, until=job.until)
    if job.refit:
        return f"{where} {describe_refit(records['finetune'])}"
    tuned = records["search"].get("tuned")
    chosen = f"  (chosen: {described(tuned['values'])})" if tuned else ""
    if job.until == "search":
        return f"{where} {job.size} rows, seed {job.seed}: phases before fine-tuning{chosen}"
    return f"{where} {describe(records['evaluate']).strip()}{chosen}"


def settle_kernels(project: Project, device: str) -> None:
    """Let a GPU compute as ``execution`` says, whatever ran in this process before; none of that stays.

    Else an evaluation would have other bits in a process of its own than right after its training.
    """
    if device.startswith("cuda"):
        from regft_core.runs import training_run

        take_device(device)
        execution = project.params.execution
        training_run.make_deterministic(device, execution.deterministic, execution.tf32)


def describe(record: dict[str, Any]) -> str:
    """One line for a run that was trained and evaluated."""
    if record["status"] != "ok":
        return f"  {run_of(record)}: FAILED: {record['error']}"
    sets = ", ".join(
        f"{name} " + " ".join(f"{metric} {value:.3f}" for metric, value in scores["metrics"].items())
        for name, scores in record["sets"].items()
    )
    note = f"  COLLAPSED ({COLLAPSED[record['collapsed']]})" if record["collapsed"] else ""
    return f"  {run_of(record)}: {sets}{note}"


def run_of(record: dict[str, Any]) -> str:
    """Rows and seed of a run, for its line on the terminal."""
    return f"{record['size']} rows, seed {record['seed']}"


def describe_refit(record: dict[str, Any]) -> str:
    """The end of the line of a run on all labelled rows."""
    if record["status"] != "ok":
        return f"refit, seed {record['seed']}: FAILED: {record['error']}"
    return f"refit on all labelled rows, seed {record['seed']}: {record['steps']} steps in {record['seconds']:.0f} s"


def describe_trial(record: dict[str, Any]) -> str:
    """One line per trial for the terminal."""
    run = f"  {run_of(record)}, trial {record['trial'] + 1} ({described(record['values'])})"
    if record["status"] != "ok":
        return f"{run}: FAILED: {record['error']}"
    return f"{run}: {record['steps']} steps, score {record['score']:.4f}"

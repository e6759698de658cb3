"""One job in whatever process an executor starts it: computed, or found in the run store, and told in a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regft_core import metrics
from regft_core.models.devices import take_device
from regft_core.runs.job import Job
from regft_core.runs.project import open_project
from regft_core.runs.run import run
from regft_core.runs.trials import try_values
from regft_core.settings.provenance import described

#: How a run collapsed, in words.
COLLAPSED = {"constant": "the same answer to every row", "majority": "no better than a constant answer"}


def run_job(job: Job, *, device: str) -> str:
    """Do one job; returns the line to print for it. All else is in the run store."""
    project = open_project(Path(job.root))
    take_device(device)  # in whatever process: steps are recorded on the current GPU
    name = job.name
    if job.trial is not None:
        record = try_values(job, project, device=device)
        name += f" ({described(record['values'])})"
    else:
        records = run(job, project, device=device, until=job.until)
        record = records.get("evaluate") or records.get("finetune") or records["search"]
        if tuned := records["search"].get("tuned"):
            name += f" (chosen: {described(tuned['values'])})"
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

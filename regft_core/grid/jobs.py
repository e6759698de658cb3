"""The jobs of a stage, one run or one trial each: what is not stored, its order and cost, its way to the workers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from regft_core import metrics
from regft_core.disk.canonical import sha256_json
from regft_core.grid.executors import is_remote, run_all
from regft_core.models.devices import refuse_slow_bf16, take_device, visible_devices
from regft_core.names import plural
from regft_core.runs.context import Context, Job, Stage, opened
from regft_core.runs.evaluate import evaluation_identity
from regft_core.runs.rows import member_label
from regft_core.runs.run import run
from regft_core.runs.store import NotStored
from regft_core.runs.train import choice_of, look_up_trial, score_identity, trials_that_choose, try_values
from regft_core.schema.method import Phase
from regft_core.settings.cost import planned_rows, sized_cost, training_rows
from regft_core.settings.layers import described
from regft_core.settings.project import Cell, Project
from regft_core.settings.yaml_paths import project_root, store_path

#: Of an evaluation, of a job with an unknown number of rows, of any part of a job at least: for the progress bar.
EVALUATION_STEPS, UNKNOWN_STEPS, LEAST_STEPS = 10.0, 1000.0, 0.1


class PlannedJob(NamedTuple):
    """A job of a stage, with the ``keys`` of results that it makes or needs, as far as they are known.

    ``shares``: what it goes through -> its work, in steps of plain fine-tuning; ``after``: jobs that it waits for.
    """

    job: Job
    shares: Mapping[str, float]
    keys: Collection[str]
    after: Collection[int] = ()


def counted(jobs: Sequence[PlannedJob]) -> str:
    """How many runs of the grid there are, and how many trials."""
    trials = sum(planned.job.trial is not None for planned in jobs)
    runs = len({(job.method, job.task, job.size, job.seed) for job in (planned.job for planned in jobs)})
    return f"{plural(runs, 'run')} and {plural(trials, 'trial')} for them" if trials else plural(runs, "run")


def jobs_of(project: Project, cell: Cell) -> list[Job]:
    return [Job(str(project.root), cell.method, cell.task, str(cell.size), seed) for seed in project.params.grid.seeds]


class Planner:
    def __init__(self, project: Project) -> None:
        self.project = project
        self.jobs = list[PlannedJob]()
        #: Key of a result -> index of the job that makes it.
        self._known: dict[str, int] = {}
        #: Name of a trial -> index of its job; empty where it is stored. Several seeds may ask for the same trials.
        self._trials: dict[str, set[int]] = {}

    def add(self, job: Job, stage: Stage) -> set[int]:
        """Add what a stage has to do for a run; returns the indices of the jobs that its output waits for."""
        if stage != "search":
            try:
                tuned = choice_of(replace(job, stored_only=True), self.project)
            except NotStored:  # trials were lost since: the job runs them first
                return {self._add(PlannedJob(job, {"evaluate": UNKNOWN_STEPS}, ()))}
            return {self._add_run(job if tuned is None else replace(job, values=tuned["values"]))}
        if self.project.trials(job.method):
            return self._add_tuned_search(job)
        return {self._add_run(replace(job, until="search"))}

    def _add_tuned_search(self, job: Job) -> set[int]:
        """Add the trials that are missing, and the phases before fine-tuning with the values that they will choose."""
        trials, waits = trials_that_choose(self.project, job), set[int]()
        for trial in trials:
            if trial.name not in self._trials:
                stored = look_up_trial(trial, self.project) is not None
                self._trials[trial.name] = set() if stored else {self._add_run(trial)}
            waits |= self._trials[trial.name]
        context = Context(job, project=self.project)  # its values are not known yet; the cost is about the same
        if not context.method.earlier:
            return waits
        shares, keys = self.steps(context, context.method.earlier), set[str]()
        for tried in (Context(trial, project=self.project) for trial in trials):
            keys |= {phase.key() for phase in tried.phases} | {sha256_json(score_identity(tried))}
        return {self._add(PlannedJob(replace(job, until="search"), shares, keys, waits))}

    def _add(self, planned: PlannedJob) -> int:
        self.jobs.append(planned)
        return len(self.jobs) - 1

    def _add_run(self, job: Job) -> int:
        """Add a run whose values are known, or a trial; returns the index of the job that makes its result."""
        context = Context(job, project=self.project)
        phases = context.method.earlier if job.until == "search" else context.method.phases
        made = {phase.name: context.key(phase.name) for phase in phases}
        if job.until == "search":
            result = sha256_json(sorted(made.values()))  # of all phases: another run may share the last one alone
        else:
            result = sha256_json((evaluation_identity if job.trial is None else score_identity)(context))
        if result in self._known:
            return self._known[result]  # two methods that amount to the same
        store = context.store
        new = [phase for phase in phases if made[phase.name] not in self._known and not store.holds(made[phase.name])]
        shares = self.steps(context, new)
        if job.until != "search" and job.trial is None:
            shares["evaluate"] = EVALUATION_STEPS
        shares = shares or {"evaluate": LEAST_STEPS}
        # What several runs lack is made by the first of them: the others would wait for its lock.
        after = {self._known[key] for key in made.values() if key in self._known}
        index = self._add(PlannedJob(job, shares, set(made.values()), after))
        self._known |= dict.fromkeys([*(made[phase.name] for phase in new), result], index)
        return index

    def steps(self, context: Context, phases: Iterable[Phase]) -> dict[str, float]:
        """Members of the phases of a run -> their declared passes, in steps of plain fine-tuning."""
        job, shares = context.job, dict[str, float]()
        rows = training_rows(self.project.root, job.cell)
        if rows is not None and job.trial is not None:
            rows = int(rows * context.tuning.share)
        for of_run in (context.phase(phase.name) for phase in phases):
            phase = of_run.settled
            count = planned_rows(self.project, job.task, phase, rows)
            cost = sized_cost(self.project, context.method, job.task, phase, count, context.shared)
            cost = 0.0 if of_run.averaged else cost
            member = max((UNKNOWN_STEPS if cost is None else cost) / phase.members, LEAST_STEPS)
            numbers = [None] if phase.repeat is None else range(phase.members)
            shares |= {member_label(phase.name, number): member for number in numbers}
        return shares


#: For training on a CPU under glibc: freed activations stay with the process, which saves page faults in every step.
KEEP_FREED_MEMORY = {"THP_MEM_ALLOC_ENABLE": "1", "MALLOC_TRIM_THRESHOLD_": "2147483647", "MALLOC_MMAP_MAX_": "0"}

#: What numpy's and torch's libraries read at import; without it numpy starts a thread for every core in every worker.
THREADS = "OMP_NUM_THREADS"


def run_on_executor(project: Project, jobs: Sequence[PlannedJob], progress: str, **callbacks: Any) -> None:
    """Run jobs as ``execution`` says, with the folder of a progress board; ``callbacks`` and errors of ``run_all``."""
    opened.cache_clear()
    execution, settings = project.params.execution, project.params.execution.settings()
    if is_remote(execution.executor):  # where other machines find the project and the runs: executors/__init__.py
        root = project.root
        store, home = store_path(root, project.params).absolute(), project_root(root).absolute()
        if not Path(os.path.normpath(store)).is_relative_to(os.path.normpath(home)):
            settings["shared"] = str(store)
        elif settings.get("address") is None:
            settings["shared"] = str(root)
        else:
            settings |= {"root": str(root), "store": str(store), "keys": [planned.keys for planned in jobs]}
    run_all(
        [replace(planned.job, progress=progress) for planned in jobs],
        run_job,
        executor=execution.executor,
        per_device=execution.workers,
        devices=prepared_devices(project),
        threads=execution.threads,
        settings=settings,
        after=[planned.after for planned in jobs],
        costs=[sum(planned.shares.values()) for planned in jobs],
        **callbacks,
    )


def prepared_devices(project: Project) -> list[str]:
    """The devices of ``params.yaml``, with the environment set up for their processes; raises ConfigError."""
    execution = project.params.execution
    # On other machines the devices are asked for where a run starts.
    devices = [execution.device] if is_remote(execution.executor) else visible_devices(execution.device)
    phases = [phase for method in project.methods.values() for phase in method.phases]
    refuse_slow_bf16(devices, [project.params.training.precision, *(phase.training.precision for phase in phases)])
    # Libraries read these at import, the allocator at the start of a process: before the workers start.
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
        record = records[job.until]
        if (values := job.values or records["search"].get("tuned", {}).get("values")) and not job.refit:
            name += f" (chosen: {described(values)})"
        if job.refit and record["status"] == "ok":  # its line counts all phases
            record = record | {part: record[part] + records["search"][part] for part in ("steps", "seconds")}
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

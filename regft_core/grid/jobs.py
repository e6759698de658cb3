"""The jobs of a stage: what is not in the run store, with its order and cost.

A job is one phase of one run, or of one trial; the last phase goes together with what judges it. What several runs
share (one key) is one job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from regft_core.disk.canonical import sha256_json
from regft_core.hooks.registry import discover
from regft_core.names import plural
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluation_key
from regft_core.runs.job import Job
from regft_core.runs.rows import member_label
from regft_core.runs.run import Record, Stage
from regft_core.runs.train import tuned_values
from regft_core.runs.trials import judging_rows, look_up_trial, score_identity, trials_that_choose
from regft_core.schema.method import FINETUNE, Phase
from regft_core.settings.cost import sized_cost, training_rows
from regft_core.settings.grid import Cell, parse_size
from regft_core.settings.project import Project

#: An evaluation, a job whose number of rows is not known yet, and any part of a job at least, so that the progress bar
#: counts it; in steps of plain fine-tuning.
EVALUATION_STEPS, UNKNOWN_STEPS, LEAST_STEPS = 10.0, 1000.0, 0.1


@dataclass
class Jobs:
    """The jobs of a stage.

    Attributes:
        after: index of a job -> indices of the jobs that it starts from or needs.
        costs: in steps of plain fine-tuning: the job with the longest chain of them behind it starts first.
        shares: name of a job -> what it goes through, with the share of the work.
        keys: index of a job -> keys of the results that it makes or needs, as far as they are known.
    """

    jobs: list[Job] = field(default_factory=list)
    after: dict[int, set[int]] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    keys: dict[int, set[str]] = field(default_factory=dict)

    def add(self, job: Job, shares: dict[str, float], *keys: str) -> int:
        """Add a job that goes through ``shares``; returns its index."""
        self.jobs.append(replace(job, shown=job.name))
        self.costs.append(sum(shares.values()))
        self.shares[job.name] = shares
        self.keys[len(self.jobs) - 1] = set(keys)
        return len(self.jobs) - 1

    def counted(self) -> str:
        """How many runs of the grid there are, and how many trials."""
        trials = len({job.name for job in self.jobs if job.trial is not None and job.phase is None})
        runs = len({(job.method, job.task, job.size, job.seed) for job in self.jobs})
        return f"{plural(runs, 'run')} and {plural(trials, 'trial')} for them" if trials else plural(runs, "run")


def jobs_of(project: Project, cell: Cell) -> list[Job]:
    """All runs of a cell, in the order of the seeds."""
    return [Job(str(project.root), cell.method, cell.task, str(cell.size), seed) for seed in project.params.grid.seeds]


class Planner:
    """Adds runs to ``jobs``."""

    def __init__(self, project: Project) -> None:
        self.project, self.registry = project, discover()
        self.jobs = Jobs()
        #: Key of a result -> index of the job that makes it.
        self._known: dict[str, int] = {}
        #: Name of a trial -> index of its last job.
        self._trials: dict[str, int] = {}
        tuning = project.params.tuning
        #: The share of its rows that a trial trains on; None where it trains on all.
        self._share = None if tuning is None else tuning.share

    def add(self, job: Job, stage: Stage, before: Record | None) -> set[int]:
        """Add what a stage has to do for a run; returns the indices of the jobs that its output waits for.

        ``before`` is the record of the stage before it.
        """
        if stage == "evaluate":
            trained = [before["key"]] if before and before.get("key") else []
            return {self.jobs.add(job, {"evaluate": EVALUATION_STEPS}, *trained)}
        if stage == "finetune":
            return {self._add_run(replace(job, values=tuned_values(before)))}
        if self.project.trials(job.method):
            return self._add_tuned_search(job)
        return set(self._add_phases(Context(job, project=self.project)).values())

    def _add_tuned_search(self, job: Job) -> set[int]:
        """The trials that are missing, and the phases before fine-tuning with the values that they will choose."""
        waits, trials = set(), trials_that_choose(self.project, job)
        for trial in trials:
            if trial.name not in self._trials and look_up_trial(trial, self.project) is None:
                self._trials[trial.name] = self._add_run(trial)
            if trial.name in self._trials:
                waits.add(self._trials[trial.name])
        context = Context(job, project=self.project)  # its values are not known yet; the cost is about the same
        shares: dict[str, float] = {}
        for phase in context.method.earlier:
            shares |= self.steps(job, context.phase(phase.name))
        if shares:
            keys = set[str]()
            for trial in trials:
                tried = Context(trial, project=self.project)
                keys |= {tried.keys.of(phase.name) for phase in tried.method.phases} | {self._score_key(tried)}
            index = self.jobs.add(replace(job, until="search"), shares, *keys)
            self.jobs.after[index] = waits
            waits = {index}
        return waits

    def _score_key(self, trial: Context) -> str:
        return sha256_json(score_identity(trial, trial.keys.of(FINETUNE), judging_rows(trial)))

    def _add_phases(self, context: Context) -> dict[str, int]:
        """Add the phases before fine-tuning; returns the index of each by its name."""
        jobs, known = self.jobs, self._known
        indices: dict[str, int] = {}
        for earlier in context.method.earlier:
            phase, key = context.phase(earlier.name), context.keys.of(earlier.name)
            if key not in known:
                if context.store.holds(key):
                    continue  # trained again by who starts from it, where its weights were pruned
                known[key] = jobs.add(replace(context.job, phase=phase.name), self.steps(context.job, phase), key)
            index = indices[phase.name] = known[key]
            one = jobs.jobs[index]
            jobs.jobs[index] = replace(one, weights=one.weights or context.keys.weights_wanted(phase))
            before = {indices[name] for name in (phase.start, *context.keys.needs(phase)) if name in indices} - {index}
            jobs.after.setdefault(index, set()).update(before)
        return indices

    def _add_run(self, job: Job) -> int:
        """Add the jobs of a run whose values are known, or of a trial; returns the index of the last one."""
        jobs, known = self.jobs, self._known
        context = Context(job, project=self.project)
        indices, finetuned = self._add_phases(context), context.keys.of(FINETUNE)
        if job.trial is not None:
            judged, shares = self._score_key(context), {}
        else:
            judged, shares = evaluation_key(context, finetuned), {"evaluate": EVALUATION_STEPS}
        if judged in known:
            return known[judged]  # two methods that amount to the same
        earlier = [context.keys.of(phase.name) for phase in context.method.earlier]
        trained = self.steps(job, context.phase(FINETUNE))
        # Its training may be another method's, and another task may judge it by other sets: not at the same time, for
        # it would wait for the lock.
        made = [finetuned, *context.keys.training_keys(FINETUNE)]
        index = known[judged] = jobs.add(job, trained | shares, *made, *earlier)
        before = {known[key] for key in made if key in known}
        for key in made:
            known.setdefault(key, index)
        jobs.after[index] = before | set(indices.values())
        return index

    def steps(self, job: Job, phase: Phase) -> dict[str, float]:
        """Member of a phase -> its declared passes, in steps of plain fine-tuning."""
        rows = training_rows(self.project.root, Cell(job.method, job.task, parse_size(job.size)))
        if rows is not None and job.trial is not None:
            rows = int(rows * (self._share or 1))
        method, shared = self.project.method(job.method, job.task), self.project.shared(job.task)
        cost = sized_cost(self.project, method, job.task, phase, rows, self.registry, shared)
        member = max((UNKNOWN_STEPS if cost is None else cost) / phase.members, LEAST_STEPS)
        return {member_label(phase, i if phase.repeat is not None else None): member for i in range(phase.members)}

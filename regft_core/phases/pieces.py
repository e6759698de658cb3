"""What a fill consists of: the pieces of work that are not in the run store, with their order and cost.

A piece is one phase of one run, or of one trial; the last one, fine-tuning, goes together with what judges it. Pieces
that several runs share (one key) are there once. Which values a tuned run has is not known before its trials have
ended: its phases, fine-tuning and evaluation are one piece, which waits for them and asks the store at its start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from regft_core.config.grid import Cell
from regft_core.config.method import FINETUNE, Phase
from regft_core.config.plan import phase_cost, training_rows
from regft_core.config.project import Project
from regft_core.hooks.registry import discover
from regft_core.phases.context import Context, Job
from regft_core.phases.evaluation_key import evaluation_key
from regft_core.phases.phase_data import member_label
from regft_core.phases.trials import trials_that_choose
from regft_core.phases.tuning import judging_rows, look_up_trial, score_identity
from regft_core.phases.whole_run import look_up_run

#: Share of an evaluation in the work of a run, in steps of plain fine-tuning; only the progress bar asks.
EVALUATION_STEPS = 10.0
#: Cost of a piece whose number of rows is not known yet.
UNKNOWN_STEPS = 1000.0


@dataclass(frozen=True)
class Piece:
    """One phase of one run or trial, as an executor sends it to a process.

    Attributes:
        phase: its name; ``finetune`` stands for fine-tuning and what judges it, and in a tuned run for all phases.
        weights: whether some run reads the weights of this phase, not only its own.
    """

    job: Job
    phase: str
    weights: bool = False

    @property
    def name(self) -> str:
        """What it is called in messages and on the progress board."""
        return self.job.name if self.phase == FINETUNE else f"{self.job.name} phase {self.phase}"


@dataclass
class Work:
    """The pieces of a fill.

    Attributes:
        after: index of a piece -> indices of the pieces that it starts from or needs.
        costs: in steps of plain fine-tuning.
        shares: name of a piece -> what it goes through, with the share of the work.
        reads: index of a piece -> keys of the weights that it reads: of the phases before, and of its own model.
        open: (method, task) -> indices of the pieces that its outputs wait for.
    """

    pieces: list[Piece] = field(default_factory=list)
    after: dict[int, set[int]] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    reads: dict[int, set[str]] = field(default_factory=dict)
    open: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def add(self, piece: Piece, shares: dict[str, float]) -> int:
        """Add a piece that goes through ``shares``; returns its index."""
        self.pieces.append(replace(piece, job=replace(piece.job, shown=piece.name)))
        self.costs.append(sum(shares.values()))
        self.shares[piece.name] = shares
        return len(self.pieces) - 1

    def count(self) -> tuple[int, int]:
        """How many runs of the grid there are, and how many trials."""
        last = [piece.job for piece in self.pieces if piece.phase == FINETUNE]
        trials = sum(job.trial is not None for job in last)
        return len(last) - trials, trials


def plan_work(project: Project, cells: Iterable[tuple[str, str]]) -> Work:
    """Every piece of the runs of ``cells`` that is not in the store."""
    planner = _Planner(project)
    for method, task in cells:
        waits = planner.work.open.setdefault((method, task), set())
        for job in jobs_of(project, method, task):
            if look_up_run(job) is None:
                waits.add(planner.add_tuned_run(job) if project.trials(method) else planner.add_run(job))
    return planner.work


def jobs_of(project: Project, method: str, task: str) -> list[Job]:
    """All runs of a method on a task, in the order of its outputs: sizes, then seeds."""
    grid = project.params.grid
    return [Job(str(project.root), method, task, str(size), seed) for size in grid.sizes for seed in grid.seeds]


class _Planner:
    """Adds runs to ``work``."""

    def __init__(self, project: Project) -> None:
        self.project, self.registry = project, discover()
        self.work = Work()
        #: Key of a result -> index of the piece that makes it.
        self._known: dict[str, int] = {}
        #: Name of a trial -> index of its last piece.
        self._trials: dict[str, int] = {}
        tuning = project.params.tuning
        #: The share of its rows that a trial trains on; None where it trains on all.
        self._share = tuning.split if tuning is not None and tuning.selection == "split" else None

    def add_tuned_run(self, job: Job) -> int:
        """Add a run whose values are tuned, and those of its trials that are missing; returns the index of the run."""
        before = set()
        for trial in trials_that_choose(self.project, job):
            if trial.name not in self._trials and look_up_trial(trial) is None:
                self._trials[trial.name] = self.add_run(trial)
            if trial.name in self._trials:
                before.add(self._trials[trial.name])
        shares: dict[str, float] = {}
        if self._share:  # else the chosen trial is the run
            context = Context(job, project=self.project)  # its values are not known yet; the cost is about the same
            for phase in context.method.phases:
                shares |= self._steps(job, context.phase(phase.name))
        index = self.work.add(Piece(job, FINETUNE), shares | {"evaluate": EVALUATION_STEPS})
        self.work.after[index] = before
        return index

    def add_run(self, job: Job) -> int:
        """Add the pieces of a run whose values are known, or of a trial; returns the index of the last one."""
        work, known = self.work, self._known
        context = Context(job, project=self.project)
        finetuned = context.key(FINETUNE)
        indices: dict[str, int] = {}
        for earlier in context.method.earlier:
            phase, key = context.phase(earlier.name), context.key(earlier.name)
            if key not in known:
                known[key] = work.add(Piece(job, earlier.name), self._steps(job, phase))
            index = indices[earlier.name] = known[key]
            piece = work.pieces[index]
            weights = piece.weights or context.weights_wanted(phase)
            work.pieces[index] = replace(piece, weights=weights)
            before = {indices[name] for name in (phase.start, *context.needs(phase)) if name in indices} - {index}
            work.after.setdefault(index, set()).update(before)
        judged, shares = evaluation_key(context, finetuned), {"evaluate": EVALUATION_STEPS}
        if job.trial is not None:
            judged, shares = context.store.run_key(score_identity(context, finetuned, judging_rows(context))), {}
        if judged in known:
            return known[judged]  # two methods that amount to the same
        index = known[judged] = work.add(Piece(job, FINETUNE), self._steps(job, context.phase(FINETUNE)) | shares)
        # One that another task judges by other sets: not at the same time, for it would wait for the lock.
        before = {known[finetuned]} if finetuned in known else set()
        known.setdefault(finetuned, index)
        work.after[index] = before | set(indices.values())
        work.reads[index] = {finetuned, *map(context.key, indices)}
        return index

    def _steps(self, job: Job, phase: Phase) -> dict[str, float]:
        """Member of a phase -> its cost in steps of plain fine-tuning."""
        rows = training_rows(self.project.root, Cell(job.method, job.task, _size(job.size)))
        if rows is not None and job.trial is not None:
            rows = int(rows * (self._share or 1))
        cost = phase_cost(phase, rows, self.registry, self.project.shared(job.task))
        one = (UNKNOWN_STEPS if cost is None else cost) / phase.members
        return {member_label(phase, i if phase.repeat is not None else None): one for i in range(phase.members)}


def _size(text: str) -> Any:
    return text if text == "full" else int(text)

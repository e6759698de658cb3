"""Run everything that is stale, across cells, so that ``dvc repro`` finds it in the run store and only commits.

A piece of work is one phase of one run; the last one, fine-tuning, goes together with the evaluation, in one
process. Pieces that several runs share (one key) are done once. They go through one pool of workers, in their
order, the longest chain first. What they find out is in the run store under the keys that the stages ask for, so
stages that run without a fill do the same work and come to the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regft_core.config.grid import Cell
from regft_core.config.method import FINETUNE
from regft_core.config.plan import phase_cost, training_rows
from regft_core.config.project import Project
from regft_core.hooks.registry import discover
from regft_core.phases.cells import NOTHING_SEARCHED, describe, run_on_executor
from regft_core.phases.context import Context, Job, project_store
from regft_core.phases.evaluate import evaluate
from regft_core.phases.evaluation_key import evaluation_key
from regft_core.phases.finetune import finetune
from regft_core.phases.locked import Locked
from regft_core.phases.made_ready import make_ready
from regft_core.phases.phase_data import member_label
from regft_core.phases.project import open_project
from regft_core.phases.records import known_keys
from regft_core.phases.run_phase import produce
from regft_core.phases.search import search
from regft_core.progress import ProgressBoard
from regft_core.runs.fingerprint import one_moment
from regft_core.runs.lookup import NotStored

#: Share of an evaluation in the work of a run, in steps of plain fine-tuning; only the progress bar asks.
EVALUATION_STEPS = 10.0
#: Cost of a piece whose number of rows is not known yet.
UNKNOWN_STEPS = 1000.0


@dataclass(frozen=True)
class Piece:
    """One phase of one run, as an executor sends it to a process.

    Attributes:
        phase: its name; ``finetune`` stands for fine-tuning and evaluation.
        weights: whether some run reads the weights of this phase, not only its own.
        owners: keys of the fine-tunings that start from it, for which it is pinned.
    """

    job: Job
    phase: str
    weights: bool = False
    owners: tuple[str, ...] = ()

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
        open: (method, task) -> indices of the pieces that its outputs wait for.
    """

    pieces: list[Piece] = field(default_factory=list)
    after: dict[int, set[int]] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)
    shares: dict[str, dict[str, float]] = field(default_factory=dict)
    open: dict[tuple[str, str], set[int]] = field(default_factory=dict)


def run_piece(piece: Piece, *, device: str) -> str:
    """Do one piece; returns the line to print for it. All else is in the run store."""
    job = piece.job
    if piece.phase != FINETUNE:
        context = Context(job, device)
        key = context.key(piece.phase)
        # Before it is trained: pruning must not take from under those who start from it what they start from.
        for owner in piece.owners:
            context.store.pin(key, owner)
        stored = produce(context, context.phase(piece.phase), "weights" if piece.weights else "result")
        if stored.result["status"] != "ok":
            return f"  {piece.name}: FAILED: {stored.result['error']}"
        return f"  {piece.name}: {stored.result['steps']} steps in {stored.result['seconds']:.0f} s"
    record = whole_run(job, device=device)[-1]
    return f"  {job.method} {job.task}, {describe(record, 'evaluate').strip()}"


def whole_run(job: Job, *, device: str = "cpu") -> list[dict[str, Any]]:
    """The records of all stages of one run, computed or found: search (if there is any), finetune, evaluate."""
    searched = search(job, device=device)
    if not searched["phases"] and searched["status"] == "ok":
        searched = NOTHING_SEARCHED
    trained = finetune(replace(job, keys=known_keys(searched)), searched, device=device)
    evaluated = evaluate(replace(job, keys=known_keys(trained)), trained, device=device)
    return [*([] if searched is NOTHING_SEARCHED else [searched]), trained, evaluated]


def look_up_run(job: Job) -> list[dict[str, Any]] | None:
    """The records of one run if all of it is in the store, else None; imports no torch."""
    try:
        return whole_run(replace(job, stored_only=True))
    except NotStored:
        return None


def stale_cells(project: Project) -> list[tuple[str, str]]:
    """(method, task) of all stages that DVC would run, the facts and the data being up to date."""
    locked = Locked(project.root)
    every = [(method, task) for method in project.methods for task in project.params.grid.tasks]
    return [cell for cell in every if not locked.runs(*cell)]


def jobs_of(project: Project, method: str, task: str) -> list[Job]:
    """All runs of a method on a task, in the order of its outputs: sizes, then seeds."""
    grid = project.params.grid
    return [Job(str(project.root), method, task, str(size), seed) for size in grid.sizes for seed in grid.seeds]


def plan_work(project: Project, cells: Iterable[tuple[str, str]]) -> Work:
    """Every piece of the runs of ``cells`` that is not in the store."""
    work = Work()
    known: dict[str, int] = {}
    for method, task in cells:
        waits = work.open.setdefault((method, task), set())
        for job in jobs_of(project, method, task):
            if look_up_run(job) is None:
                waits.add(_add_run(work, known, project, job))
    return work


def _add_run(work: Work, known: dict[str, int], project: Project, job: Job) -> int:
    """Add the pieces of one run; returns the index of the last one. ``known``: key -> piece."""
    context = Context(job, project=project)
    registry = discover()
    rows = training_rows(project.root, Cell(job.method, job.task, _size(job.size)))
    finetuned = context.key(FINETUNE)

    def add(piece: Piece, key: str, cost: float, shares: dict[str, float]) -> int:
        known[key] = len(work.pieces)
        work.pieces.append(replace(piece, job=replace(job, shown=piece.name)))
        work.costs.append(cost)
        work.shares[piece.name] = shares
        return known[key]

    def steps(name: str) -> dict[str, float]:
        phase = context.phase(name)
        cost = phase_cost(phase, rows, registry)
        one = (UNKNOWN_STEPS if cost is None else cost) / phase.members
        return {member_label(phase, i if phase.repeat is not None else None): one for i in range(phase.members)}

    indices: dict[str, int] = {}
    for earlier in context.method.earlier:
        key = context.key(earlier.name)
        if key not in known:
            shares = steps(earlier.name)
            known[key] = add(Piece(job, earlier.name), key, sum(shares.values()), shares)
        index = indices[earlier.name] = known[key]
        piece, phase = work.pieces[index], context.phase(earlier.name)
        weights = piece.weights or context.weights_wanted(phase)
        work.pieces[index] = replace(piece, weights=weights, owners=(*piece.owners, finetuned))
        before = {indices[name] for name in (phase.start, *context.needs(phase)) if name in indices} - {index}
        work.after.setdefault(index, set()).update(before)
    judged = evaluation_key(context, finetuned)
    if judged in known:
        return known[judged]  # two methods that amount to the same
    shares = steps(FINETUNE) | {"evaluate": EVALUATION_STEPS}
    index = add(Piece(job, FINETUNE), judged, sum(shares.values()), shares)
    # One that another task judges by other sets: not at the same time, for it would wait for the lock.
    before = {known[finetuned]} if finetuned in known else set()
    known.setdefault(finetuned, index)
    work.after[index] = before | set(indices.values())
    return index


def _size(text: str) -> Any:
    return text if text == "full" else int(text)


def fill(root: Path, cells: Sequence[tuple[str, str]] | None = None, say: Callable[[str], None] = print) -> int:
    """Run what is stale; returns how many pieces of work were done.

    Args:
        cells: (method, task) to fill; by default those that the lock files do not show to be up to date.
        say: prints one line.

    Raises:
        JobsFailed: some runs raised (a run whose loss diverged is a result and raises nothing).
    """
    project = open_project(root)
    with one_moment():
        wanted = list(stale_cells(project) if cells is None else cells)
        if tuned := sum(bool(project.trials(method)) for method, _ in wanted):
            # What their runs are is known once their trials have been judged.
            say(f"{tuned} cells with trials are left to `dvc repro`, which runs them one cell at a time")
        work = plan_work(project, [cell for cell in wanted if not project.trials(cell[0])])
        for cell in [cell for cell, waits in work.open.items() if not waits]:
            make_ready(project, *cell, look_up_run)
    if not work.pieces:
        return 0
    execution = project.params.execution
    store = project_store(project)
    names = [piece.name for piece in work.pieces]
    runs = sum(piece.phase == FINETUNE for piece in work.pieces)
    say(f"{runs} runs to compute, in {len(names)} pieces on the executor '{execution.executor}'")
    with ProgressBoard("fill", names, each=work.shares) as board:

        def ended(index: int, line: str) -> None:
            board.ended(names[index])
            say(line)
            for cell, waits in work.open.items():
                if index in waits:
                    waits.discard(index)
                    if not waits:
                        make_ready(project, *cell, look_up_run)
            store.prune()  # what unfinished runs still need is pinned

        pieces = [replace(piece, job=replace(piece.job, progress=board.folder)) for piece in work.pieces]
        sys.stdout.flush()
        run_on_executor(project, pieces, run_piece, after=work.after, costs=work.costs, on_result=ended)
    return len(names)

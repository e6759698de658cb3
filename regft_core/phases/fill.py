"""Run everything that is stale, across cells, so that ``dvc repro`` finds it in the run store and only commits.

The pieces of work (``pieces``) go through one pool of workers, in their order, the longest chain first; only jobs and
lines of text travel. What they find out is in the run store under the keys that the stages ask for, so stages that
run without a fill do the same work and come to the same bits.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from regft_core.config.method import FINETUNE
from regft_core.config.project import Project
from regft_core.config.provenance import described
from regft_core.errors import StoreError
from regft_core.phases.cells import describe, run_on_executor, settle_kernels
from regft_core.phases.context import Context, project_store
from regft_core.phases.locked import Locked
from regft_core.phases.made_ready import make_ready
from regft_core.phases.pieces import Piece, Work, plan_work
from regft_core.phases.project import kept_open, open_project
from regft_core.phases.run_phase import produce
from regft_core.phases.trials import describe_trial
from regft_core.phases.tuning import try_values
from regft_core.phases.whole_run import look_up_run, whole_run
from regft_core.progress import ProgressBoard
from regft_core.runs.fingerprint import one_moment

log = logging.getLogger(__name__)


def run_piece(piece: Piece, *, device: str) -> str:
    """Do one piece; returns the line to print for it. All else is in the run store."""
    job = piece.job
    settle_kernels(job, device)
    if piece.phase != FINETUNE:
        context = Context(job, device)
        stored = produce(context, context.phase(piece.phase), "weights" if piece.weights else "result")
        if stored.result["status"] != "ok":
            return f"  {piece.name}: FAILED: {stored.result['error']}"
        return f"  {piece.name}: {stored.result['steps']} steps in {stored.result['seconds']:.0f} s"
    if job.trial is not None:
        return f"  {job.method} {job.task}, {describe_trial(try_values(job, device=device)).strip()}"
    *_, trained, evaluated = whole_run(job, device=device)
    chosen = f"  (chosen: {described(trained['tuned']['values'])})" if "tuned" in trained else ""
    return f"  {job.method} {job.task}, {describe(evaluated, 'evaluate').strip()}{chosen}"


def stale_cells(project: Project) -> list[tuple[str, str]]:
    """(method, task) of all stages that DVC would run, the facts and the data being up to date."""
    locked = Locked(project.root)
    every = [(method, task) for method in project.methods for task in project.params.grid.tasks]
    return [cell for cell in every if not locked.runs(*cell)]


def fill(root: Path, cells: Sequence[tuple[str, str]] | None = None, say: Callable[[str], None] = print) -> int:
    """Run what is stale; returns how many pieces of work were done.

    Args:
        cells: (method, task) to fill; by default those that the lock files do not show to be up to date.
        say: prints one line.

    Raises:
        JobsFailed: some runs raised (a run whose loss diverged is a result and raises nothing).
    """
    project = open_project(root)
    with one_moment(), kept_open():
        work = plan_work(project, stale_cells(project) if cells is None else cells)
        for cell in [cell for cell, waits in work.open.items() if not waits]:
            make_ready(project, *cell, look_up_run)
    if not work.pieces:
        return 0
    execution = project.params.execution
    store = project_store(project)
    names = [piece.name for piece in work.pieces]
    say(f"{_counted(work)} to compute, in {len(names)} pieces on the executor '{execution.executor}'")
    read = [key for keys in work.reads.values() for key in keys]
    with store.needed(read) as needed, ProgressBoard("fill", names, each=work.shares, called="pieces") as board:

        def ended(index: int, line: str) -> None:
            board.ended(names[index])
            say(line)
            for cell, waits in work.open.items():
                if index in waits:
                    waits.discard(index)
                    if not waits:
                        make_ready(project, *cell, look_up_run)
            needed.done(work.reads.get(index, ()))
            try:
                store.prune()
            except StoreError as error:
                log.warning("the run store is not pruned now: %s", error)  # no reason to end the runs at work

        pieces = [replace(piece, job=replace(piece.job, progress=board.folder)) for piece in work.pieces]
        sys.stdout.flush()
        run_on_executor(project, pieces, run_piece, after=work.after, costs=work.costs, on_result=ended)
    return len(names)


def _counted(work: Work) -> str:
    runs, trials = work.count()
    return f"{runs} runs and {trials} trials before them" if trials else f"{runs} runs"

"""A stage of the whole grid: what its plan asks for and ``work/`` does not have, through one pool of workers.

Runs come from the run store, or from the executor. A killed stage goes on where it stopped.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from regft_core.disk.files import remove, write_json
from regft_core.disk.reading import read_json
from regft_core.errors import InputChanged, RegftError, RunFailed, StoreError
from regft_core.grid.cell_keys import FAILURES, Keys, cell_keys, read_failures, read_plan, write_plan
from regft_core.grid.data import prepare
from regft_core.grid.executors import JobFailure, JobsFailed
from regft_core.grid.jobs import PlannedJob, Planner, counted, jobs_of, run_on_executor
from regft_core.names import plural
from regft_core.output import ProgressBoard
from regft_core.runs.context import STAGES, Context, Job, Stage, project_store
from regft_core.runs.outputs import trains_encoder, write_cell
from regft_core.runs.run import look_up
from regft_core.runs.work import Work, is_current
from regft_core.settings.project import Cell, Project, cells, named_cells, parse_size
from regft_core.settings.read_project import open_project

log = logging.getLogger(__name__)

#: Cell -> why it has no output.
Failures = dict[str, str]
#: Seconds between two prunings, each of which looks at every run of the store.
PRUNING = 60.0
BEFORE: dict[Stage, Stage] = {"finetune": "search", "evaluate": "finetune"}


def compute(root: Path, stage: Stage, only: Sequence[str] = (), say: Callable[[str], None] = print) -> Failures:
    """Bring ``work/<stage>`` up to date with the plan (``only`` these ``METHOD/TASK``); returns the cells that failed.

    Raises InputChanged after an edit since the plan.
    """
    grid, plan = _Grid(open_project(root), stage, only, say), read_plan(root, stage)
    planned = {name: keys for name, keys in plan.items() if not only or name.rpartition("/")[0] in only}
    if not only:  # outputs of cells that are no longer in the grid go
        wanted = {parent for name in planned for parent in (Path(name), *Path(name).parents)}
        for path in [path for depth in ("*", "*/*", "*/*/*") for path in grid.folder.glob(depth) if path.is_dir()]:
            if path.relative_to(grid.folder) not in wanted:
                remove(path)
    failures = grid.compute({name: keys for name, keys in planned.items() if not is_current(grid.folder / name, keys)})
    grid.folder.mkdir(parents=True, exist_ok=True)
    file = grid.folder / FAILURES
    before = read_json(file) if only and file.is_file() else {}
    write_json(file, {name: before[name] for name in before.keys() & plan.keys() - planned.keys()} | failures)
    told = {name for name, reason in read_failures(root).items() if not reason.startswith(f"{stage}: ")}
    for name, reason in failures.items():
        if name not in told:
            say(f"FAILED: {name}: {reason}")
    return failures


def compute_only(root: Path, until: Stage, only: Sequence[str], say: Callable[[str], None] = print) -> Failures:
    """Compute the ``named_cells`` of ``only`` up to a stage, from their rows on; returns those that failed."""
    project = open_project(root)
    only = [f"{cell.method}/{cell.task}" for cell in named_cells(project, only)]
    prepare(project)
    write_plan(project)
    failures: Failures = {}
    for stage in STAGES[: STAGES.index(until) + 1]:
        failures = compute(root, stage, only, say) | failures  # a later stage only says that it lacks the earlier one
    return failures


class _Grid:
    def __init__(self, project: Project, stage: Stage, only: Sequence[str], say: Callable[[str], None]) -> None:
        self.project, self.root, self.stage, self.only, self.say = project, project.root, stage, only, say
        self.folder = project.root / "work" / stage

    def compute(self, stale: dict[str, Keys]) -> Failures:
        """Compute the ``stale`` cells; those that have failed before are among them."""
        failures, waiting = dict[str, str](), dict[str, set[int]]()
        project = self.project.snapshot()
        planner = Planner(project)
        ahead = self._ahead(project) if stale and self.stage == "search" else []
        for name, keys in stale.items():
            self._require_planned(project, name, keys)
            try:
                missing = self._write(project, name, keys)
            except RegftError as error:
                failures[name] = str(error)
                continue
            if missing:
                indices = (planner.add(job, "finetune" if job in ahead else self.stage) for job in missing)
                waiting[name] = set().union(*indices)
        for job in ahead if waiting else ():
            planner.add(job, "finetune")
        return failures | self._compute(planner.jobs, waiting, stale) if waiting else failures

    def _ahead(self, project: Project) -> list[Job]:
        """Runs that train no encoder, which are cheap: their scores are there before the long searches end."""
        ahead = list[Job]()
        for cell in cells(project):
            if project.trials(cell.method) or (self.only and f"{cell.method}/{cell.task}" not in self.only):
                continue
            runs = [Context(job, project=project) for job in jobs_of(project, cell)]
            if not trains_encoder(runs[0]):
                ahead += [run.job for run in runs if not run.store.holds(run.last.key())]
        return ahead

    def _compute(self, jobs: Sequence[PlannedJob], waiting: dict[str, set[int]], stale: dict[str, Keys]) -> Failures:
        store, executor = project_store(self.project), self.project.params.execution.executor
        failures: Failures = {}
        self.say(f"{self.stage}: {counted(jobs)}, {plural(len(jobs), 'job')} on the executor '{executor}'")
        # What the stage search makes is read by the stage after it, so it is needed until the end.
        needed_later = {i for i, one in enumerate(jobs) if self.stage == "search" and one.job.trial is None}
        needed = Counter(key for planned in jobs for key in planned.keys)
        pruned = 0.0

        def prune() -> None:
            nonlocal pruned
            try:
                store.prune(keep=+needed)
            except StoreError as error:
                log.warning("the run store is not pruned now: %s", error)  # no reason to end the runs at work
            pruned = time.monotonic()

        shares = {planned.job.name: planned.shares for planned in jobs}
        with ProgressBoard(self.stage, shares) as board:

            def ended(index: int, line: str) -> None:
                self.say(line)
                for name, indices in waiting.items():
                    if index in indices:
                        indices.discard(index)
                        if not indices and (reason := self._collect(name, stale[name])) is not None:
                            failures[name] = reason
                board.ended(jobs[index].job.name)  # after its cell is written, which takes time, too
                if index not in needed_later:
                    needed.subtract(jobs[index].keys)
                if time.monotonic() - pruned >= PRUNING:
                    prune()

            def failed(failure: JobFailure) -> None:  # said at once: the others may take hours
                self.say(f"  {failure.job}: FAILED: {failure.message}")
                print(failure.trace, end="", file=sys.stderr)
                board.ended(failure.job)

            sys.stdout.flush()
            try:
                run_on_executor(self.project, jobs, board.folder, on_result=ended, on_failure=failed)
            except JobsFailed as error:
                for failure in error.failures:
                    for name in (name for name, indices in waiting.items() if failure.index in indices):
                        # What comes after this stage may have failed: then its own result is there.
                        if name not in failures and self._collect(name, stale[name]) is not None:
                            failures[name] = f"{failure.job}: {failure.message}"
            prune()
        return failures

    def _collect(self, name: str, keys: Keys) -> str | None:
        """Write a cell whose jobs have ended; returns why it cannot be written."""
        project = self.project.snapshot()
        try:
            self._require_planned(project, name, keys)
            lost = "its runs are not in the run store any more; run `dvc repro` again"
            return lost if self._write(project, name, keys) else None
        except RegftError as error:
            return str(error)

    def _require_planned(self, project: Project, name: str, keys: Keys) -> None:
        if cell_keys(project, _cell(name)).get(self.stage) != keys:
            what = "is not the plan of this configuration, code, data and packages any more"
            raise InputChanged("plan-outdated", f"work/plan/{self.stage}.json {what} (first difference: {name})")

    def _write(self, project: Project, name: str, keys: Keys) -> list[Job]:
        """Return the runs of a cell that are not stored; where all are, write its folder. Raises RunFailed."""
        cell, earlier = _cell(name), BEFORE.get(self.stage)
        planned = earlier is not None and name in read_plan(self.root, earlier)
        if planned and not Work(self.root).result_file(str(earlier), cell).is_file():
            hint = "run `dvc repro`, which computes it first"
            raise RunFailed("not-computed", f"stage {earlier} has no result\n    -> {hint}")
        records = {job: look_up(job, project, self.stage) for job in jobs_of(project, cell)}
        missing = [job for job, record in records.items() if record is None]
        if not missing:
            context = Context(replace(next(iter(records)), stored_only=True), project=self.project)
            write_cell(context, self.stage, [record for record in records.values() if record is not None], keys)
        return missing


def _cell(name: str) -> Cell:
    method, task, size = name.split("/")
    return Cell(method, task, parse_size(size))

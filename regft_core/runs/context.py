"""One run to do (``Job``), and everything that it needs, found once: paths, store, encoder, rows, phases, keys."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, cast

from regft_core.data.examples import Example, divide, read_jsonl, text_key
from regft_core.data.splits import of_refit, of_seed, rows_file, set_files
from regft_core.disk.canonical import sha256_json
from regft_core.disk.paths import content_sha256
from regft_core.hooks.registry import Registry
from regft_core.kinds import find
from regft_core.rng import derive
from regft_core.runs.rows import groups_of, split_rows
from regft_core.runs.run_phase import RunPhase
from regft_core.runs.store import RunStore
from regft_core.runs.work import dataset_folder, described_task
from regft_core.schema.params import TuningConfig
from regft_core.settings.project import Cell, Project, check_listed, parse_size
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import store_path

Stage = Literal["search", "finetune", "evaluate"]
STAGES: tuple[Stage, ...] = ("search", "finetune", "evaluate")


@dataclass(frozen=True)
class Job:
    """One run to do, as plain values that can be sent to another process.

    Attributes:
        values: tuned settings of the run, dotted; None where nothing is tuned.
        trial: number of the trial that this is; ``fold``: that it is scored on, None where a share is set aside.
        stored_only: only look the run up; what is not in the run store raises ``NotStored``.
        refit: train on all labelled rows, with ``values``; ``evaluated``: seeds and values of runs to average.
        store: the run store's folder where it is not that of ``params.yaml``.
    """

    root: str
    method: str
    task: str
    size: str
    seed: int
    progress: str | None = None
    values: Mapping[str, Any] | None = None
    trial: int | None = None
    fold: int | None = None
    stored_only: bool = False
    store: str | None = None
    until: Stage = "evaluate"
    refit: bool = False
    evaluated: tuple[tuple[int, Mapping[str, Any] | None], ...] = ()

    @property
    def cell(self) -> Cell:
        return Cell(self.method, self.task, parse_size(self.size))

    @property
    def name(self) -> str:
        """The run among all of them: ``vanilla mrpc 300 seed 1``, ``vanilla mrpc 300 seed 1 trial 2``."""
        trial = "" if self.trial is None else f" trial {self.trial + 1}"
        fold = "" if self.fold is None else f" fold {self.fold + 1}"
        size = f"{self.size}{' refit' if self.refit else ''}"
        return f"{self.method} {self.task} {size} seed {self.seed}{trial}{fold}"


@cache
def opened(root: str) -> Project:
    """Return the project of a process's jobs, read once: an edit of its settings counts from the next stage on."""
    return open_project(Path(root))


class Context:
    """One run, with everything that it needs, loaded when first asked for; ``project``: if the caller has it."""

    def __init__(self, job: Job, device: str = "cpu", project: Project | None = None) -> None:
        self.job = job
        self.device = device
        self.root = Path(job.root)
        self.project = open_project(self.root) if project is None else project
        self.params = self.project.params
        check_listed(self.project, method=job.method, task=job.task, size=job.size, seed=job.seed)
        self.method, self.shared = self.project.method(job.method, job.task), self.project.shared(job.task)
        if job.values is not None:
            self.method, _ = self.project.tuned(job.method, job.task, job.values)
        self.task_config = self.project.tasks[job.task]
        self.registry = cast(Registry, self.project.builder.registry)
        self._keys: dict[tuple[str, int | None], str] = {}

    def anew(self) -> Context:
        """Return the context of the same job, which reads all inputs again; phases keep keys that they have taken."""
        again = Context(self.job, self.device, self.project)
        again.take({name: key for (name, member), key in self._keys.items() if member is None})
        return again

    @property
    def dataset(self) -> Path:
        return dataset_folder(self.root, self.job.task)

    @property
    def rows_file(self) -> Path:
        if self.job.refit:
            return self.dataset / rows_file(self.task, "train")
        folder = self.root / "work" / "subsamples" / self.job.task / self.job.size
        return folder / f"seed-{self.job.seed}.jsonl"

    @cached_property
    def store(self) -> RunStore:
        return project_store(self.project, stored_only=self.job.stored_only, path=self.job.store)

    @cached_property
    def phases(self) -> list[RunPhase]:
        return [RunPhase(self, phase.of_final_model if self.job.refit else phase) for phase in self.method.phases]

    def phase(self, name: str) -> RunPhase:
        return next(phase for phase in self.phases if phase.name == name)

    @property
    def last(self) -> RunPhase:
        """Fine-tuning, whose answers are those of the run."""
        return self.phases[-1]

    @cached_property
    def evaluated(self) -> list[Context]:
        """Of a refit, the evaluated runs that phases may average."""
        runs = (replace(self.job, refit=False, evaluated=(), seed=s, values=values) for s, values in self.job.evaluated)
        return [Context(job, self.device, self.project) for job in runs]

    def key(self, name: str, member: int | None = None) -> str:
        """The key of the result of a phase, or of one member of it, as it was when this was first asked."""
        if (name, member) not in self._keys:
            self._keys[name, member] = sha256_json(self.phase(name).identity(member))
        return self._keys[name, member]

    def take(self, recorded: Mapping[str, str]) -> None:
        """Take the keys (by phase) of a finished run for those of what is here: what the store has of them is read."""
        self._keys |= {(name, None): key for name, key in recorded.items()}

    @cached_property
    def task(self) -> dict[str, Any]:
        """``work/datasets/<task>/task.json``, as this run sees it: its fold, or all rows."""
        return of_refit(self.described) if self.job.refit else of_seed(self.described, self.job.seed)

    @cached_property
    def described(self) -> dict[str, Any]:
        """The same of all runs of the task."""
        return described_task(self.root, self.job.task)

    @property
    def rows_alone(self) -> bool:
        """Whether a frozen encoder reads every row by itself: rows of folds, which are those of one file."""
        return "folds" in (self.described.get("drawn") or {})

    @property
    def tuning(self) -> TuningConfig:
        """The section ``tuning``, which a trial has."""
        assert self.params.tuning is not None
        return self.params.tuning

    @property
    def without_dev(self) -> bool:
        """Whether this is a trial that is scored on rows of its own, not on the dev set."""
        return self.job.trial is not None and self.tuning.selection == "split"

    @cached_property
    def held_out(self) -> list[Example]:
        """Rows of the cell that a trial is scored on and must not see: a share, or a stratified fold; whole groups."""
        if not self.without_dev:
            return []
        job, rows, rounds = self.job, read_jsonl(self.rows_file), self.tuning.rounds
        groups = groups_of(self.dataset, rows)
        if job.fold is None:
            return [rows[row] for row in split_rows(len(rows), self.tuning.split, job.seed, "tuning", 0, groups)[1]]
        strata = find(self.task["kind"]).strata([row.label for row in rows])
        units, stream = groups or list(map(text_key, rows)), random.Random(derive(job.seed, "tuning folds", job.task))
        parts = divide(strata, units, [1 / rounds] * rounds, stream)
        return [row for row, part in zip(rows, parts, strict=True) if part == job.fold]

    @cached_property
    def dev_sha256(self) -> str:
        """The hash of the development set, as it was when this was first asked."""
        return content_sha256(self.dataset / rows_file(self.task, "dev"))

    @cached_property
    def dev_rows(self) -> list[Example]:
        return read_jsonl(self.dataset / rows_file(self.task, "dev"))

    @cached_property
    def sets_sha256(self) -> dict[str, str]:
        """Set -> the hash of the rows that runs are evaluated on, as it was when this was first asked."""
        return {name: content_sha256(self.dataset / file) for name, file in set_files(self.task).items()}


def project_store(project: Project, *, stored_only: bool = False, path: str | None = None) -> RunStore:
    """The run store that ``params.yaml`` names; ``stored_only``: to look runs up in; ``path``: in another folder."""
    budget = project.params.store.budget_gb
    folder = store_path(project.root, project.params) if path is None else Path(path)
    return RunStore(folder, int(budget * 1e9) if budget else None, stored_only=stored_only)

"""Reads the files of a project: tasks of the grid, those that judge them, and those that something trains on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema.method import is_name
from regft_core.schema.params import OodChoice, TaskSettings
from regft_core.schema.sources import FilesSource
from regft_core.schema.tasks import OodConfig, TaskConfig
from regft_core.settings.checks.source_errors import file_name, is_there
from regft_core.settings.checks.task_errors import check_task, referenced_tasks
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.layers import lay
from regft_core.settings.project import LeftOut
from regft_core.settings.validate import Found, validate
from regft_core.settings.yaml_paths import TASKS, missing, read, task_file

#: Keys of ``task_settings`` that are laid over something else than the task's own file.
_NOT_THE_FILES = TaskSettings.model_fields.keys() - {"primary"}


class Reader:
    """Reads and checks tasks; grows while a project is read.

    Attributes:
        documents: file, relative to the project -> what it holds, for every file that was read.
        problems: everything that is wrong.
        warnings: what the user should know although it is right.
        tasks: those without a mistake in their fields.
        left_out: task -> declared OOD set -> why it does not judge.
    """

    def __init__(self, root: Path, params: Document, ood: OodChoice) -> None:
        self.root = root
        self.params_file = params.file
        self.documents = {params.file: params}
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.ood = ood
        self.left_out: dict[str, dict[str, LeftOut]] = {}
        self.tasks: dict[str, TaskConfig] = {}

    def note(self, found: Iterable[Found]) -> None:
        """Add what a check found."""
        for one in found:
            if isinstance(one, Problem):
                self.problems.append(one)
            else:
                self.warnings.append(one)

    def document(self, name: str) -> Document | None:
        """Return a task's file, None where it cannot be read, which is told where it is named."""
        with suppress(ConfigError):
            return self.documents.get(task_file(name)) or read(self.root, TASKS, name)
        return None

    def read_grid(self, params: Document, names: Collection[str]) -> dict[str, TaskConfig]:
        """Read the tasks of the grid, then every task that one of them is evaluated on; return those that are right."""
        judges: dict[str, tuple[Document, KeyPath]] = {}
        for i, name in enumerate(names):
            document = self._read(name, params, ("grid", "tasks", i))
            if document is None:
                continue
            for judge in referenced_tasks(document):
                if is_name(judge) and judge not in names and self._chosen(judge):
                    judges.setdefault(judge, (document, ("ood", judge)))
        for name, (document, path) in judges.items():
            self._read(name, document, path)
        grid = {name: self.tasks[name] for name in names if name in self.tasks}
        for name in grid:
            self._check(name)
        self.left_out = {name: self.left_out[name] for name in grid}
        declared = [name for task in grid for name in (*grid[task].ood, *self.left_out[task])]
        for i, name in enumerate(self.ood if not isinstance(self.ood, str) else ()):
            if name not in declared:
                message = f"no task of the grid declares the out-of-distribution set '{name}'"
                hint = suggestion(name, declared, "declared")
                self.problems.append(params.problem("unknown-set", ("ood", i), message, hint))
        return grid

    def read_training_rows(self, name: str, document: Document, path: KeyPath, purpose: str) -> None:
        """Read a task, named in ``document`` at ``path``, whose training rows something needs beside the grid's."""
        if task_file(name) not in self.documents:
            self._read(name, document, path)
            if name in self.tasks:
                self._check(name)
        if name in self.tasks and self.tasks[name].splits.train is None:
            message = f"task '{name}' has no training split to {purpose}"
            problem = document.problem("training-split-missing", path, message, "name a task with splits.train")
            self.problems.append(problem)

    def _read(self, name: str, place: Document, path: KeyPath) -> Document | None:
        try:
            document = read(self.root, TASKS, name)
        except ConfigError as error:
            self.problems += error.problems
            return None
        if document is None:
            self.problems.append(missing(self.root, TASKS, name, place, path))
            return None
        self.documents[task_file(name)] = document
        settings = self.documents[self.params_file], ("task_settings", name)
        task, problems = validate(TaskConfig, lay(document, *settings, skip=_NOT_THE_FILES))
        self.problems += problems
        if task is not None:
            reasons = {ood: self._left_out(ood, config) for ood, config in task.ood.items()}
            self.left_out[name] = {ood: reason for ood, reason in reasons.items() if reason is not None}
            for ood, reason in self.left_out[name].items():
                if reason.file is not None:
                    self.warnings.append(f"{document.place(('ood', ood))}: '{ood}' is left out: {reason.why}")
            judging = {ood: config for ood, config in task.ood.items() if reasons[ood] is None}
            self.tasks[name] = task.model_copy(update={"ood": judging})
        return document

    def _check(self, name: str) -> None:
        self.note(check_task(self.root, name, self.tasks, self.documents))

    def _chosen(self, name: str) -> bool:
        """Whether ``ood`` of the params file lets a set judge."""
        return self.ood == "all" or name in self.ood

    def _left_out(self, name: str, config: OodConfig) -> LeftOut | None:
        """Return why a set does not judge: ``ood`` leaves it out, or it is ``if_present`` and its file is absent."""
        if not self._chosen(name):
            return LeftOut("ood is none" if self.ood == "none" else "not listed in ood")
        split, source = config.split, config.source
        if not config.if_present or (split is not None and is_there(self.root, split)):
            return None
        if source is None and (file := self.document(name)) is not None:
            other = validate(TaskConfig, file)[0]
            source, split = (other.source, split or other.splits.judging) if other is not None else (None, None)
        if not isinstance(source, FilesSource) or split is None or is_there(self.root, split):
            return None
        return LeftOut(f"there is no file {file_name(split)}", file_name(split))

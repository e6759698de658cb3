"""Reads the tasks of a project: those of the grid, those that judge them, and those that something trains on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema.method import is_name
from regft_core.schema.params import OodChoice
from regft_core.schema.tasks import FilesSource, TaskConfig
from regft_core.settings.checks.builtin_tasks import Builtin
from regft_core.settings.checks.sources import file_name, is_there
from regft_core.settings.checks.tasks import check_task, referenced_tasks
from regft_core.settings.files import TASKS, read, task_file
from regft_core.settings.messages.explain import validate
from regft_core.settings.project import LeftOut
from regft_core.settings.reading import Reading
from regft_core.settings.yaml.document import Document, KeyPath
from regft_core.settings.yaml.valid_parts import parts


class TaskReader:
    """Reads and checks tasks; what is wrong goes to ``reading``.

    Attributes:
        right: the tasks without a mistake in their fields.
        known: all tasks read so far; wrong ones as far as they are right (``parts``).
        left_out: task -> declared OOD set -> why it does not judge.
    """

    def __init__(self, reading: Reading, builtin: Builtin | None, ood: OodChoice = "all") -> None:
        self.reading = reading
        self.builtin = builtin
        self.ood = ood
        self.left_out: dict[str, dict[str, LeftOut]] = {}
        self.right: dict[str, TaskConfig] = {}
        self.known: dict[str, TaskConfig] = {}

    def read_grid(self, params: Document, grid: Mapping[KeyPath, str]) -> dict[str, TaskConfig]:
        """Read the tasks of the grid (place in ``params`` -> name), then every task that one of them is judged on.

        Returns those of the grid, as far as they are known.
        """
        places: dict[str, KeyPath] = {}
        for path, name in grid.items():
            places.setdefault(name, path)
        judges: dict[str, tuple[Document, KeyPath]] = {}
        for name, path in places.items():
            document = self._read(name, params, path)
            if document is None:
                continue
            for judge in referenced_tasks(document):
                if is_name(judge) and judge not in places and self._chosen(judge):
                    judges.setdefault(judge, (document, ("ood", judge)))
        for name, (document, path) in judges.items():
            self._read(name, document, path)
        listed = {name: self.known[name] for name in places if name in self.known}
        for name in listed:
            self._check(name)
        self.left_out = {name: out for name, out in self.left_out.items() if name in listed}
        self.reading.problems += self._unknown_sets(params, list(listed))
        return listed

    def _chosen(self, name: str) -> bool:
        """Whether ``ood`` of the params file lets a set judge."""
        return self.ood == "all" or name in self.ood

    def _unknown_sets(self, params: Document, listed: list[str]) -> Iterator[Problem]:
        """Names in the list ``ood`` that no task of the grid declares."""
        if isinstance(self.ood, str):
            return
        declared = dict.fromkeys(
            name for task in listed for name in (*getattr(self.known[task], "ood", ()), *self.left_out.get(task, ()))
        )
        for i, name in enumerate(self.ood):
            if name not in declared:
                message = f"no task of the grid declares the out-of-distribution set '{name}'"
                yield params.problem("unknown-set", ("ood", i), message, suggestion(name, declared, "declared"))

    def read_training_rows(self, name: str, document: Document, path: KeyPath, purpose: str) -> None:
        """Read a task, named in ``document`` at ``path``, whose training rows something needs beside the grid's."""
        if task_file(name) not in self.reading.documents:
            if self._read(name, document, path) is None:
                return
            self._check(name)
        if name in self.right and self.right[name].splits.train is None:
            message = f"task '{name}' has no training split to {purpose}"
            self.reading.problems.append(
                document.problem("training-split-missing", path, message, "name a task with splits.train")
            )

    def known_with(self, name: str) -> Mapping[str, TaskConfig]:
        """``known`` with the task ``name``, read now where nothing has named it yet; what is wrong is said later."""
        if name in self.known or not is_name(name):
            return self.known
        try:
            document = read(self.reading.root, TASKS, name)
        except ConfigError:
            return self.known
        return self.known if document is None else {**self.known, name: parts(TaskConfig, document.data)}

    def _read(self, name: str, place: Document, path: KeyPath) -> Document | None:
        document = self.reading.read(TASKS, name, place, path)
        if document is None:
            return None
        task, found = validate(TaskConfig, document)
        self.reading.problems += found
        if task is not None:
            task = self.right[name] = self._with_sets_that_judge(name, task, document)
        self.known[name] = task or parts(TaskConfig, document.data)
        return document

    def _check(self, name: str) -> None:
        reading = self.reading
        place = reading.documents[task_file(name)]
        reading.problems += check_task(
            reading.root, name, self.known, place, reading.documents, self.builtin, reading.warnings
        )

    def _with_sets_that_judge(self, task_name: str, task: TaskConfig, document: Document) -> TaskConfig:
        """The task without the sets that ``ood`` leaves out, and those marked ``if_present`` whose file is not there.

        ``left_out`` remembers each with its reason.
        """
        root, absent = self.reading.root, self.left_out.setdefault(task_name, {})
        for name, config in task.ood.items():
            if not self._chosen(name):
                absent[name] = LeftOut("ood is none" if self.ood == "none" else "not listed in ood")
                continue
            split, source = config.split, config.source
            if not config.if_present or (split is not None and is_there(root, split)):
                continue
            if source is None:
                try:
                    own = read(root, TASKS, name)
                except ConfigError:
                    continue  # said where that file is read
                other = validate(TaskConfig, own)[0] if own is not None else None
                source, split = (other.source, split or other.splits.judging) if other is not None else (None, None)
            if isinstance(source, FilesSource) and split is not None and not is_there(root, split):
                absent[name] = LeftOut(f"there is no file {file_name(split)}", file_name(split))
                where = f"{document.file}:{document.line(('ood', name))}"
                self.reading.warnings.append(f"{where}: '{name}' is left out: {absent[name].why}")
        return task.model_copy(update={"ood": {name: c for name, c in task.ood.items() if name not in absent}})

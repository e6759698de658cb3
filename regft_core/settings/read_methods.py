"""Reads the listed methods of a project, and each of them on every task that changes something of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from regft_core.errors import ConfigError
from regft_core.schema.method import Method
from regft_core.schema.methods import MethodConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.checks.methods import SharedFor
from regft_core.settings.files import METHODS, method_file, missing
from regft_core.settings.read_tasks import TaskReader
from regft_core.settings.reading import Reading
from regft_core.settings.settings import arms_of, training_of
from regft_core.settings.yaml.document import Document, KeyPath
from regft_core.settings.yaml.valid_parts import parts


class MethodReader:
    """Reads methods, and the tasks that their phases train on; what is wrong goes to ``reading`` and ``builder``.

    Attributes:
        right: the listed methods without a mistake, under the shared protocol.
        on_task: (method, task) -> the method as it is on a task that changes it.
    """

    def __init__(self, reading: Reading, builder: MethodBuilder, tasks: TaskReader) -> None:
        self.reading = reading
        self.builder = builder
        self.tasks = tasks
        self.right: dict[str, Method] = {}
        self.on_task: dict[tuple[str, str], Method] = {}

    def read_listed(self, params: Document, listed: dict[KeyPath, str]) -> None:
        """Read the listed methods (place in ``params`` -> name)."""
        reading, builder = self.reading, self.builder
        arms = arms_of(builder.settings)
        for path, name in listed.items():
            if method_file(name) in reading.documents:
                continue
            try:
                document = builder.document(name)
            except ConfigError as error:
                reading.problems += error.problems
                continue
            if document is None:
                problem = missing(reading.root, METHODS, name, params, path, [*arms, *builder.near(name)])
                if problem is not None and name in builder.registry:
                    hint = f"there is a regulariser of that name: write the file, with 'regularisers: {{{name}: {{}}}}'"
                    problem = replace(problem, hint=hint)
                if problem is not None and name not in arms:  # an arm without a base: check_settings says so
                    reading.problems.append(problem)
                continue
            reading.documents[method_file(name)] = document
            method = builder.build(name, document, self.shared_for(None))
            if method is not None:
                self.right[name] = method
            self._read_tasks(document)

    def read_on_tasks(self, grid: Iterable[str]) -> None:
        """Read every method that is right on every task of the ``grid`` that changes something of it."""
        params = self.builder.settings
        for task in grid:
            layers = params.task_settings[task].methods if task in params.task_settings else {}
            changed = training_of(params, self.tasks.known, task) != params.training
            for name, method in self.right.items():
                if not (changed or layers.keys() & self._behind(name)):
                    continue
                document = self.builder.document(name, task)
                if document is None:
                    continue
                own = self.builder.build(name, document, self.shared_for(task), task)
                if own is not None and own != method:
                    self.on_task[name, task] = own
                    self._read_tasks(document)

    def _behind(self, name: str) -> set[str]:
        """A method and the arm that it is a control of: what a task changes in one of them, it changes here."""
        found = {name}
        while (derivation := self.builder.derivation(self.builder.base(name))) is not None:
            name = derivation[0]
            found.add(name)
        return found

    def shared_for(self, task: str | None) -> SharedFor:
        """The protocol of a phase of a method on ``task``; one that trains on another task's rows has that task's."""

        def shared(other: str | None) -> TrainingConfig:
            params = self.builder.settings
            wanted = task if other is None else other
            return params.training if wanted is None else training_of(params, self.tasks.known_with(wanted), wanted)

        return shared

    def _read_tasks(self, document: Document) -> None:
        """Tasks that phases of a method train on, also where the rest of its file is wrong."""
        config = parts(MethodConfig, document.data)
        phases = config.phases if config.known("phases") else None
        for name, phase in (phases or {}).items():
            wanted = phase.data.task if phase.known("data") and phase.data.known("task") else None
            if wanted is not None:
                self.tasks.read_training_rows(wanted, document, ("phases", name, "data", "task"), "train a phase on")

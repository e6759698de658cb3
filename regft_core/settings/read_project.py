"""Read and validate a whole project: ``params.yaml``, its tasks and its methods.

Every problem of every file is collected before anything is reported; a wrong ``params.yaml`` is reported alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from regft_core.catalogue import use_project
from regft_core.errors import ConfigError, Problem
from regft_core.hooks.registry import discover
from regft_core.names import suggestion
from regft_core.schema.method import Method, is_name
from regft_core.schema.params import OodChoice, Params, TaskSettings
from regft_core.schema.sources import FilesSource
from regft_core.schema.tasks import OodConfig, TaskConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.controls import controls_of, warnings_of
from regft_core.settings.document import Document, KeyPath, load_yaml
from regft_core.settings.encoders import read_contamination
from regft_core.settings.layers import lay, on_task, shared_sections
from regft_core.settings.method_errors import check_compositions, check_encoders, check_layers, check_lent, check_tuning
from regft_core.settings.params_errors import check_evaluations, check_model, check_params, check_report, check_version
from regft_core.settings.preset import in_small
from regft_core.settings.project import LeftOut, Project
from regft_core.settings.task_errors import check_folds, check_task, file_name, is_there, referenced_tasks
from regft_core.settings.validate import Found, validate
from regft_core.settings.yaml_paths import (
    METHODS,
    PRESETS,
    TASKS,
    method_file,
    missing,
    no_project,
    read,
    task_file,
    without_override,
)

#: Keys of ``task_settings`` that are laid over something else than the task's own file.
_NOT_THE_FILES = TaskSettings.model_fields.keys() - {"primary"}


class Reader:
    """Reads and checks tasks. ``documents``: file, relative to the project -> what it holds; ``tasks``: right ones."""

    def __init__(self, root: Path, params: Document, ood: OodChoice) -> None:
        self.root = root
        self.params = params
        self.documents = {params.file: params}
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.ood = ood
        self.left_out: dict[str, dict[str, LeftOut]] = {}
        self.tasks: dict[str, TaskConfig] = {}

    def note(self, found: Iterable[Found]) -> None:
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

    def read_grid(self, names: Collection[str]) -> dict[str, TaskConfig]:
        """Read the tasks of the grid, then every task that one of them is evaluated on; return those that are right."""
        judges: dict[str, tuple[Document, KeyPath]] = {}
        for i, name in enumerate(names):
            document = self._read(name, self.params, ("grid", "tasks", i))
            if document is None:
                continue
            for judge in referenced_tasks(document):
                if is_name(judge) and judge not in names and self._chosen(judge):
                    judges.setdefault(judge, (document, ("ood", judge)))
        for name, (document, path) in judges.items():
            self._read(name, document, path)
        grid = {name: self.tasks[name] for name in names if name in self.tasks}
        for name in grid:
            self.note(check_task(self.root, name, self.tasks, self.documents))
        self.left_out = {name: self.left_out[name] for name in grid}
        declared = [name for task in grid for name in (*grid[task].ood, *self.left_out[task])]
        for i, name in enumerate(self.ood if len(grid) == len(names) and not isinstance(self.ood, str) else ()):
            if name not in declared:
                message = f"no task of the grid declares the out-of-distribution set '{name}'"
                hint = suggestion(name, declared, "declared")
                self.problems.append(self.params.problem("unknown-set", ("ood", i), message, hint))
        return grid

    def read_training_rows(self, name: str, document: Document, path: KeyPath, purpose: str) -> None:
        """Read a task, named in ``document`` at ``path``, whose training rows something needs beside the grid's."""
        if task_file(name) not in self.documents:
            self._read(name, document, path)
            if name in self.tasks:
                self.note(check_task(self.root, name, self.tasks, self.documents))
        if name in self.tasks and self.tasks[name].splits.train is None:
            message = f"task '{name}' has no training split to {purpose}"
            hint = "name a task with splits.train"
            self.problems.append(document.problem("training-split-missing", path, message, hint))

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
        laid = lay(document, self.params, ("task_settings", name), skip=_NOT_THE_FILES)
        task, problems = validate(TaskConfig, laid)
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

    def _chosen(self, name: str) -> bool:
        return self.ood == "all" or (self.ood != "none" and name in self.ood)

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


def open_project(
    root: Path,
    params_file: str = "params.yaml",
    params_text: str | Document | None = None,
    *,
    check_composition: bool = True,
) -> Project:
    """Read and validate the project at ``root``, with what its own folders define.

    Args:
        params_file: another file instead of ``params.yaml``, for instance a preset.
        params_text: content in place of that file's, or what was read of it.
        check_composition: whether every method must be able to act on every task of the grid.

    Raises ConfigError with all problems of all files.
    """
    use_project(root)
    if params_text is None and params_file == "params.yaml" and not (root / params_file).exists():
        raise ConfigError([no_project(root)])
    document = params_text if isinstance(params_text, Document) else load_yaml(root / params_file, root, params_text)
    if params_file.startswith(PRESETS):
        document = without_override(document)
    earlier = check_version(document)
    params, problems = validate(Params, document)
    problems += shared_sections(document)[2] if params is not None else []
    if params is None or problems:
        raise ConfigError(problems)

    reader = Reader(root, document, params.ood)
    reader.warnings += earlier
    grid = reader.read_grid(params.grid.tasks)

    @cache
    def shared_on(task: str | None) -> Document:
        if task is None:
            return document
        file = reader.document(task)
        return on_task(document, task, file and in_small(file, params))

    builder = MethodBuilder(root, discover(), document, params, shared_on)
    methods = _read_methods(reader, builder)
    reader.note(check_params(root, params, document))
    reader.note(check_folds(params, document, grid))
    reader.note(check_layers(builder, params, document))
    reader.note(check_report(params, document, grid, reader.left_out))
    found, rows_of = check_evaluations(params, document, grid)
    reader.note(found)
    for path, name in rows_of.items():
        reader.read_training_rows(name, document, path, "read rows of")
    sections = {}
    for name in reader.tasks:
        training, model, problems = shared_sections(shared_on(name))
        reader.note(problems)
        if training is not None and model is not None:
            sections[name] = (training, model)
    changed = _on_tasks(builder, reader, methods, grid)
    grid = {name: task for name, task in grid.items() if name in sections}
    reader.note(check_model(root, params.model, document))
    for name in grid:
        reader.note(check_model(root, sections[name][1], shared_on(name)))

    reader.note(check_lent(params, methods, reader.documents))
    found, trials = check_tuning(builder, methods, grid, changed)
    reader.note(found)
    every = {task: config for task, config in reader.tasks.items() if task in sections}
    encoders = {task: sections[task][1] for task in grid}
    for name, method in methods.items():
        place = reader.documents[method_file(name)]
        for task in grid:
            on_this, file = changed.get((name, task), method), builder.document(name, task) or place
            reader.note(check_encoders(root, on_this, file, shared_on(task)))
        if check_composition:
            tried = {task: [({}, changed.get((name, task), method)), *trials.get((name, task), ())] for task in grid}
            reader.note(check_compositions(builder, tried, grid, every, encoders, place))
    try:
        seen = read_contamination(root)
    except ConfigError as error:
        reader.note(error.problems)
    if reader.problems:
        # What a task changes is read for the task and for each method: the first allows what stands there.
        first: dict[Problem, Problem] = {}
        for problem in reader.problems:
            first.setdefault(replace(problem, hint=""), problem)
        raise ConfigError(list(first.values()))

    for task, config in grid.items():
        sets = list(config.ood)
        places = {encoders[task].name: shared_on(task).place(("model", "name"))}
        for name, method in methods.items():
            for phase in method.phases:
                if "name" in phase.model:
                    at = ("phases", phase.name, "model", "name")
                    places.setdefault(phase.model["name"], reader.documents[method_file(name)].place(at))
        for encoder, where in places.items():
            for text in seen.sentences(encoder, task, sets):
                reader.warnings.append(f"{where}: {text}")
    controls = controls_of(builder, methods, reader.warnings)
    warnings = tuple(dict.fromkeys([*reader.warnings, *warnings_of(builder, methods, controls)]))
    left_out = {name: sets for name, sets in reader.left_out.items() if sets}
    more = warnings, reader.documents, changed, sections, controls, left_out
    return Project(root, params, reader.tasks, methods, builder, *more)


def _read_methods(reader: Reader, builder: MethodBuilder) -> dict[str, Method]:
    """Read the listed methods, and the tasks that their phases train on; return those without a mistake."""
    methods: dict[str, Method] = {}
    for i, name in enumerate(builder.settings.methods):
        path: KeyPath = ("methods", i)
        try:
            document = builder.document(name)
            if document is None:
                if builder.base(name) == name:  # else it is an arm without a base: check_layers says so
                    arms = builder.settings.method_settings
                    reader.problems.append(missing(reader.root, METHODS, name, builder.params, path, *arms))
                continue
            reader.documents[method_file(name)] = document
            methods[name] = builder.build(name, document)
            _read_rows(reader, methods[name], document)
        except ConfigError as error:
            reader.problems += error.problems
    return methods


def _on_tasks(
    builder: MethodBuilder, reader: Reader, methods: Mapping[str, Method], grid: Mapping[str, object]
) -> dict[tuple[str, str], Method]:
    """Return (method, task) -> the method on a task of the grid that changes it."""
    changed: dict[tuple[str, str], Method] = {}
    shared = builder.params.data["training"]
    for task in grid:
        own = builder.settings.task_settings.get(task)
        # A layer of one method changes others, too: its controls, and those that have its phases or match its compute.
        if not (own is not None and own.methods) and builder.shared(task).data["training"] == shared:
            continue
        for name, method in methods.items():
            document = builder.document(name, task)
            assert document is not None
            try:
                on_this = builder.build(name, document, task)
            except ConfigError as error:
                reader.problems += error.problems
                continue
            if on_this != method:
                changed[name, task] = on_this
                _read_rows(reader, on_this, document)
    return changed


def _read_rows(reader: Reader, method: Method, document: Document) -> None:
    for phase in method.phases:
        if phase.data.task is not None:
            at = ("phases", phase.name, "data", "task")
            reader.read_training_rows(phase.data.task, document, at, "train a phase on")

"""Read and validate a whole project: ``params.yaml``, its tasks and its methods.

Every problem of every file is collected before anything is reported. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from regft_core.config.averages import check_averages
from regft_core.config.build_method import MethodBuilder
from regft_core.config.check_builtin import check_sizes
from regft_core.config.check_evaluations import FindEvaluation, check_evaluations, named_tasks
from regft_core.config.check_methods import METHODS, ComposeCheck, SharedFor, check_composition, encoder_problems
from regft_core.config.check_params import EncoderCheck, check_params
from regft_core.config.check_settings import arms_of, check_settings, model_of, training_of
from regft_core.config.check_sources import file_name, is_there
from regft_core.config.check_tasks import Builtin, check_task, referenced_tasks
from regft_core.config.contamination import read_contamination, sentences
from regft_core.config.explain import validate
from regft_core.config.find_controls import find_controls
from regft_core.config.method import Method, Registry, is_name
from regft_core.config.parts import parts
from regft_core.config.schema import StrictModel
from regft_core.config.schema.encoder import EncoderConfig
from regft_core.config.schema.methods import MethodConfig
from regft_core.config.schema.params import GridConfig, Params
from regft_core.config.schema.tasks import FilesSource, TaskConfig
from regft_core.config.schema.training import TrainingConfig
from regft_core.config.tuning import Trial, check_tuning, trials_of, tuned_method
from regft_core.config.yamlio import Document, KeyPath, load_yaml
from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion

__all__ = ["METHODS", "TASKS", "Builtin", "ComposeCheck", "Method", "Project", "load_project"]

TASKS = "pipelines/tasks"

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Project:
    """A valid project.

    ``tasks`` holds the tasks of the grid, those that only judge them, and those that a phase of a
    method trains on; ``methods`` the listed methods in the order of ``params.yaml``, under the shared protocol,
    and ``on_task`` those that (method, task) changes. ``warnings`` are for the user to read.
    """

    root: Path
    params: Params
    tasks: dict[str, TaskConfig]
    methods: dict[str, Method]
    warnings: tuple[str, ...] = ()
    documents: dict[str, Document] = field(default_factory=dict, repr=False, compare=False)
    on_task: dict[tuple[str, str], Method] = field(default_factory=dict)
    builder: MethodBuilder | None = field(default=None, repr=False, compare=False)

    def method(self, name: str, task: str) -> Method:
        """A listed method as it runs on a task."""
        return self.on_task.get((name, task), self.methods[name])

    def shared(self, task: str) -> TrainingConfig:
        """The protocol that all methods share on a task: ``training`` with what the task changes."""
        return training_of(self.params, self.tasks, task)

    def trials(self, name: str) -> list[Trial]:
        """The settings that are tried for a method, in order; empty where nothing of it is tuned."""
        return trials_of(self.params.tuning, self.methods[name])

    def tuned(self, name: str, task: str | None, values: Mapping[str, Any]) -> tuple[Method, TrainingConfig]:
        """A method (on a task) with tuned values, and the protocol that it starts from.

        Raises ConfigError for values that do not fit this task, though they fit the method.
        """
        assert self.builder is not None
        other = {rows: self.shared(rows) for rows in self.tasks}
        shared = self.params.training if task is None else self.shared(task)
        before = len(self.builder.problems)
        method, training = tuned_method(self.builder, name, task, values, shared, other)
        if method is None:
            raise ConfigError(self.builder.problems[before:])
        return method, training

    def model(self, task: str) -> EncoderConfig:
        """The section ``model`` with what the task changes, before a method's own."""
        return model_of(self.params, self.tasks, task)


def load_project(
    root: Path,
    registry: Registry,
    compose_check: ComposeCheck | None = None,
    *,
    builtin: Builtin | None = None,
    encoder_check: EncoderCheck | None = None,
    find_evaluation: FindEvaluation | None = None,
    params_file: str = "params.yaml",
    params_text: str | None = None,
) -> Project:
    """Read and validate the project at ``root``.

    Args:
        root: project root.
        registry: regulariser name -> its class.
        compose_check: what speaks against a method on a task, given all tasks; called once per pair. When
            sections of ``params.yaml`` other than ``training`` are wrong, it sees defaults there.
        builtin: options and splits of built-in datasets.
        encoder_check: what speaks against the files of an alias or a local directory.
        find_evaluation: looks up what an evaluation declares; without it only their names are checked.
        params_file: another file in the place of ``params.yaml``, for instance a preset.
        params_text: content to check in place of that file's.

    Raises:
        ConfigError: all problems of all files.
    """
    loader = _Loader(Path(root), registry, compose_check, builtin, encoder_check, find_evaluation)
    return loader.load(params_file, params_text)


class _Loader:
    def __init__(
        self,
        root: Path,
        registry: Registry,
        compose_check: ComposeCheck | None,
        builtin: Builtin | None,
        encoder_check: EncoderCheck | None,
        find_evaluation: FindEvaluation | None,
    ) -> None:
        self.root = root
        self.registry = registry
        self.compose_check = compose_check
        self.builtin = builtin
        self.encoder_check = encoder_check
        self.find_evaluation = find_evaluation
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.documents: dict[str, Document] = {}
        #: All tasks read so far; wrong ones as far as they are right (``parts``).
        self.known: dict[str, TaskConfig] = {}
        #: Sections of ``params.yaml`` in which defaults stand for what is wrong.
        self.wrong: set[str] = set()

    def load(self, params_file: str, params_text: str | None) -> Project:
        document = load_yaml(self.root / params_file, self.root, params_text)
        self.documents[params_file] = document
        params, found = validate(Params, document)
        self.problems += found
        partial, self.wrong = (params, set()) if params is not None else _partial(document, found)
        grid_tasks = _names(document, ("grid", "tasks"))
        tasks = self._tasks(document, grid_tasks)
        builder = MethodBuilder(self.root, self.registry, document, partial, exact="training" not in self.wrong)
        methods = self._methods(document, builder, tasks)
        known = params or parts(Params, document.data)
        problems, warnings = check_params(self.root, known, document, self.encoder_check)
        self.problems += problems
        self.warnings += warnings
        listed = {name: self.known[name] for name in grid_tasks.values() if name in self.known}
        self.problems += check_settings(self.root, known, document, listed, self.documents, self.encoder_check)
        on_task = self._on_task(builder, methods, list(listed), tasks)
        trials: dict[str, list[Method]] = {}
        if partial.tuning is not None:
            names = list(_names(document, ("methods",)).values())
            other = {name: training_of(partial, tasks, name) for name in tasks}
            problems, trials = check_tuning(partial.tuning, methods, names, builder, partial.training, other)
            self.problems += problems
        self.problems += check_averages(known, document, listed)
        problems, warnings = check_evaluations(known, document, listed, self.find_evaluation)
        self.problems += problems
        self.warnings += warnings
        for path, wanted in named_tasks(document, self.find_evaluation).items():
            self._training_task(wanted, document, path, tasks, "read rows of")
        judged = {name: tasks[name] for name in dict.fromkeys(grid_tasks.values()) if name in tasks}
        for method in methods.values():
            place = self.documents[f"{METHODS}/{method.name}.yaml"]
            if "model" not in self.wrong:
                self.problems += encoder_problems(method, partial.model, place)
            if self.compose_check is not None:
                self._compose(method.name, methods, on_task, judged, tasks, partial)
                # Where a task changes the method, its trials are laid over that: they are other methods than these.
                alike = {task: config for task, config in judged.items() if (method.name, task) not in on_task}
                for trial in trials.get(method.name, ()):
                    self.problems += check_composition(trial, alike, tasks, partial, self.compose_check, place)
        self.problems += builder.problems
        try:
            seen = read_contamination(self.root)
        except ConfigError as error:
            self.problems += error.problems
        if self.problems or params is None:
            raise ConfigError(list(dict.fromkeys(self.problems)))
        for task in params.grid.tasks:
            sets = list(tasks[task].ood)
            for text in sentences(params.model.name, task, seen.of(params.model.name, [task, *sets]), sets):
                self.warnings.append(f"{params_file}:{document.line(('model', 'name'))}: {text}")
        controls = find_controls(self.root, methods)
        self.warnings += [str(control) for control in controls.missing] + controls.unreadable
        return Project(self.root, params, tasks, methods, tuple(self.warnings), self.documents, on_task, builder)

    # -------------------------------------------------------------------------------- tasks

    def _tasks(self, params: Document, grid: Mapping[KeyPath, str]) -> dict[str, TaskConfig]:
        """Tasks of the grid, then every task that one of them is judged on; all that are right."""
        tasks: dict[str, TaskConfig] = {}
        seen: set[str] = set()
        wanted = [(name, params, path) for path, name in grid.items()]
        judges: list[tuple[str, Document, KeyPath]] = []
        for name, place, path in wanted:
            document = self._named(TASKS, "task", name, place, path, seen)
            if document is not None:
                judges += [(ood, document, ("ood", ood)) for ood in referenced_tasks(document) if is_name(ood)]
                self._task(document, name, tasks)
        for name, place, path in judges:
            document = self._named(TASKS, "task", name, place, path, seen)
            if document is not None:
                self._task(document, name, tasks)
        listed = {name: self.known[name] for name in dict.fromkeys(grid.values()) if name in self.known}
        for name in listed:
            self._check_task(name)
        self.problems += check_sizes(params, listed, self.builtin)
        return tasks

    def _task(self, document: Document, name: str, tasks: dict[str, TaskConfig]) -> None:
        task, found = validate(TaskConfig, document)
        self.problems += found
        if task is not None:
            task = self._with_present_sets(task, document)
        self.known[name] = task or parts(TaskConfig, document.data)
        if task is not None:
            tasks[name] = task

    def _with_present_sets(self, task: TaskConfig, document: Document) -> TaskConfig:
        """The task without the sets marked ``if_present`` whose file is not there; each is said."""
        absent = []
        for name, config in task.ood.items():
            split, source = config.split, config.source
            if not config.if_present or (split is not None and is_there(self.root, split)):
                continue
            if source is None and (self.root / TASKS / f"{name}.yaml").is_file():
                try:
                    other, _ = validate(TaskConfig, load_yaml(self.root / TASKS / f"{name}.yaml", self.root))
                except ConfigError:
                    continue  # said where that file is read
                source, split = (other.source, split or other.splits.dev) if other is not None else (None, None)
            if isinstance(source, FilesSource) and split is not None and not is_there(self.root, split):
                absent.append(name)
                where = f"{document.file}:{document.line(('ood', name))}"
                self.warnings.append(f"{where}: '{name}' is left out: there is no file {file_name(split)}")
        return task.model_copy(update={"ood": {name: c for name, c in task.ood.items() if name not in absent}})

    def _check_task(self, name: str) -> None:
        place = self.documents[f"{TASKS}/{name}.yaml"]
        self.problems += check_task(self.root, name, self.known, place, self.documents, self.builtin, self.warnings)

    # ------------------------------------------------------------------------------ methods

    def _methods(self, params: Document, builder: MethodBuilder, tasks: dict[str, TaskConfig]) -> dict[str, Method]:
        methods: dict[str, Method] = {}
        arms = arms_of(builder.settings)
        for path, name in _names(params, ("methods",)).items():
            if name in methods or f"{METHODS}/{name}.yaml" in self.documents:
                continue
            try:
                document = builder.document(name)
            except ConfigError as error:
                self.problems += error.problems
                continue
            if document is None:
                if name not in arms:  # check_settings has said that its base is not there
                    self._missing(METHODS, "method", name, params, path, arms)
                continue
            self.documents[f"{METHODS}/{name}.yaml"] = document
            method = builder.build(name, document, self._shared_for(builder, None))
            if method is not None:
                methods[name] = method
            self._phase_tasks(document, tasks)
        return methods

    def _on_task(
        self, builder: MethodBuilder, methods: dict[str, Method], grid: Sequence[str], tasks: dict[str, TaskConfig]
    ) -> dict[tuple[str, str], Method]:
        """Every method on every task that changes something of it."""
        found: dict[tuple[str, str], Method] = {}
        params = builder.settings
        for task in grid:
            layers = params.task_settings[task].methods if task in params.task_settings else {}
            changed = training_of(params, self.known, task) != params.training
            for name, method in methods.items():
                if not (changed or name in layers):
                    continue
                document = builder.document(name, task)
                if document is None:
                    continue
                own = builder.build(name, document, self._shared_for(builder, task), task)
                if own is not None and own != method:
                    found[name, task] = own
                    self._phase_tasks(document, tasks)
        return found

    def _shared_for(self, builder: MethodBuilder, task: str | None) -> SharedFor:
        """The protocol of a phase of a method on ``task``; one that trains on another task's rows has that task's."""

        def shared(other: str | None) -> TrainingConfig:
            params = builder.settings
            wanted = task if other is None else other
            return params.training if wanted is None else training_of(params, self._known_task(wanted), wanted)

        return shared

    def _known_task(self, name: str) -> dict[str, TaskConfig]:
        """``known`` with the task ``name``, read now where nothing has named it yet; what is wrong is said later."""
        if name not in self.known and is_name(name):
            try:
                document = load_yaml(self.root / TASKS / f"{name}.yaml", self.root)
            except ConfigError:
                return self.known
            return {**self.known, name: parts(TaskConfig, document.data)}
        return self.known

    def _compose(
        self,
        name: str,
        methods: dict[str, Method],
        on_task: dict[tuple[str, str], Method],
        judged: dict[str, TaskConfig],
        every: dict[str, TaskConfig],
        params: Params,
    ) -> None:
        """What speaks against a method on each task; tasks on which it is the same method are asked together."""
        assert self.compose_check is not None
        place = self.documents[f"{METHODS}/{name}.yaml"]
        same = {task: config for task, config in judged.items() if (name, task) not in on_task}
        alike: dict[str, dict[str, TaskConfig]] = {}
        for task, config in same.items():
            alike.setdefault(model_of(params, judged, task).model_dump_json(), {})[task] = config
        if not judged:
            alike["none"] = {}  # what needs no task is said all the same
        for tasks in alike.values():
            model = model_of(params, judged, next(iter(tasks))) if tasks else params.model
            own = params.model_copy(update={"model": model})
            self.problems += check_composition(methods[name], tasks, every, own, self.compose_check, place)
        for task, config in judged.items():
            if (name, task) in on_task:
                changes = {"model": model_of(params, judged, task), "training": training_of(params, judged, task)}
                own = params.model_copy(update=changes)
                self.problems += check_composition(
                    on_task[name, task], {task: config}, every, own, self.compose_check, place
                )

    def _phase_tasks(self, document: Document, tasks: dict[str, TaskConfig]) -> None:
        """Tasks that phases of a method train on, also where the rest of its file is wrong."""
        config = parts(MethodConfig, document.data)
        phases = config.phases if config.known("phases") else None
        for name, phase in (phases or {}).items():
            wanted = phase.data.task if phase.known("data") and phase.data.known("task") else None
            if wanted is None:
                continue
            path: KeyPath = ("phases", name, "data", "task")
            self._training_task(wanted, document, path, tasks, "train a phase on")

    def _training_task(
        self, wanted: str, document: Document, path: KeyPath, tasks: dict[str, TaskConfig], purpose: str
    ) -> None:
        """A task, named in ``document`` at ``path``, whose training rows something needs beside the grid's."""
        if f"{TASKS}/{wanted}.yaml" not in self.documents:
            place = self._named(TASKS, "task", wanted, document, path, set())
            if place is None:
                return
            self._task(place, wanted, tasks)
            self._check_task(wanted)
        if wanted in tasks and tasks[wanted].splits.train is None:
            message = f"task '{wanted}' has no training split to {purpose}"
            self.problems.append(document.problem(path, message, "name a task with splits.train"))

    # -------------------------------------------------------------------------------- files

    def _named(
        self, folder: str, what: str, name: str, place: Document, path: KeyPath, seen: set[str]
    ) -> Document | None:
        """The YAML file of a name, once; None when it was read before or cannot be read."""
        if name in seen:
            return None
        seen.add(name)
        file = f"{folder}/{name}.yaml"
        if not (self.root / file).is_file():
            self._missing(folder, what, name, place, path)
            return None
        try:
            document = load_yaml(self.root / file, self.root)
        except ConfigError as error:
            self.problems += error.problems
            return None
        self.documents[file] = document
        return document

    def _missing(
        self, folder: str, what: str, name: str, place: Document, path: KeyPath, more: Sequence[str] = ()
    ) -> None:
        present = sorted({*(p.stem for p in (self.root / folder).glob("*.yaml")), *more})
        message = f"unknown {what} '{name}': there is no {folder}/{name}.yaml"
        self.problems.append(place.problem(path, message, suggestion(name, present, f"{what}s there")))


def _names(document: Document, path: KeyPath) -> dict[KeyPath, str]:
    """Well-formed names of a list in ``document``, by place, also when the rest of it is wrong."""
    data: Any = document.data
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    items: Sequence[Any] = data if isinstance(data, list) else ()
    return {(*path, i): item for i, item in enumerate(items) if isinstance(item, str) and is_name(item)}


def _partial(document: Document, problems: Sequence[Problem]) -> tuple[Params, set[str]]:
    """``params.yaml`` with stand-ins for its wrong sections, so that methods can still be checked; and those sections.

    Of ``training``, on which every method depends, the right values stay.
    """
    wrong = {problem.key.split(".")[0].split("[")[0] for problem in problems}
    training = parts(TrainingConfig, document.data.get("training"))
    stand_ins: dict[str, Any] = {
        "model": EncoderConfig(name="minilm", revision=None, max_length=128),
        "grid": GridConfig(tasks=("none",), sizes=("full",), seeds=(0,)),
        "methods": ("none",),
        "subsample": {},
        "training": {name: value for name, value in training.__dict__.items() if _complete(value)},
        "report": {},
    }
    right = {name: document.data[name] for name in Params.model_fields if name in document.data and name not in wrong}
    return Params.model_validate({**stand_ins, **right}), wrong


def _complete(value: Any) -> bool:
    """Whether no field of a model is left out (``parts``); other values are complete."""
    return not isinstance(value, StrictModel) or value.known(*type(value).model_fields)

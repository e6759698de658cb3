"""Read and validate a whole project: ``params.yaml``, its tasks and its methods.

Every problem of every file is collected before anything is reported. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from regft_core.config.check_builtin import check_sizes
from regft_core.config.check_evaluations import FindEvaluation, check_evaluations, named_tasks
from regft_core.config.check_methods import (
    METHODS,
    build_method,
    check_composition,
    check_parts,
    method_factor,
    phase_configs,
    phase_path,
)
from regft_core.config.check_params import EncoderCheck, check_params
from regft_core.config.check_sources import file_name, is_there
from regft_core.config.check_tasks import Builtin, check_task, referenced_tasks
from regft_core.config.contamination import read_contamination, sentences
from regft_core.config.explain import validate
from regft_core.config.find_controls import find_controls
from regft_core.config.method import Method, Registry, is_name
from regft_core.config.parts import parts
from regft_core.config.schema import EncoderConfig, FilesSource, GridConfig, MethodConfig, Params, TaskConfig
from regft_core.config.yamlio import Document, KeyPath, load_yaml
from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion

__all__ = ["METHODS", "TASKS", "Builtin", "ComposeCheck", "Method", "Project", "load_project"]

TASKS = "pipelines/tasks"

ComposeCheck = Callable[[Method, TaskConfig, str, Params], list[str]]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Project:
    """A valid project.

    ``tasks`` holds the tasks of the grid, those that only judge them, and those that a phase of a
    method trains on; ``methods`` the listed methods in the order of ``params.yaml``. ``warnings`` are
    for the user to read.
    """

    root: Path
    params: Params
    tasks: dict[str, TaskConfig]
    methods: dict[str, Method]
    warnings: tuple[str, ...] = ()
    documents: dict[str, Document] = field(default_factory=dict, repr=False, compare=False)


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
        compose_check: what speaks against a method on a task; called once per pair. When
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

    def load(self, params_file: str, params_text: str | None) -> Project:
        document = load_yaml(self.root / params_file, self.root, params_text)
        self.documents[params_file] = document
        params, found = validate(Params, document)
        self.problems += found
        partial = params or _partial(document, found)
        grid_tasks = _names(document, ("grid", "tasks"))
        tasks = self._tasks(document, grid_tasks)
        methods = self._methods(document, partial, tasks)
        known = params or parts(Params, document.data)
        problems, warnings = check_params(self.root, known, document, self.encoder_check)
        self.problems += problems
        self.warnings += warnings
        listed = {name: self.known[name] for name in grid_tasks.values() if name in self.known}
        problems, warnings = check_evaluations(known, document, listed, self.find_evaluation)
        self.problems += problems
        self.warnings += warnings
        for path, wanted in named_tasks(document, self.find_evaluation).items():
            self._training_task(wanted, document, path, tasks, "read rows of")
        if partial is not None and self.compose_check is not None:
            judged = {name: tasks[name] for name in dict.fromkeys(grid_tasks.values()) if name in tasks}
            for method in methods.values():
                place = self.documents[f"{METHODS}/{method.name}.yaml"]
                self.problems += check_composition(method, judged, partial, self.compose_check, place)
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
        return Project(self.root, params, tasks, methods, tuple(self.warnings), self.documents)

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

    def _methods(self, params: Document, partial: Params | None, tasks: dict[str, TaskConfig]) -> dict[str, Method]:
        methods: dict[str, Method] = {}
        seen: set[str] = set()
        for path, name in _names(params, ("methods",)).items():
            document = self._named(METHODS, "method", name, params, path, seen)
            if document is None:
                continue
            method = self._method(name, document, partial, ())
            if method is not None:
                methods[name] = method
                self._phase_tasks(method, document, tasks)
        return methods

    def _method(self, name: str, document: Document, partial: Params | None, trail: tuple[str, ...]) -> Method | None:
        config, found = validate(MethodConfig, document)
        self.problems += found
        if config is None:
            known = parts(MethodConfig, document.data)
            self.problems += check_parts(self.root, name, known, document, self.registry)
            return None
        training = partial.training if partial is not None else None

        def matched(other: str) -> float | None:
            """Factor of another method's compute; that method need not be listed."""
            if other in (name, *trail):
                circle = " -> ".join((*trail, name, other))
                self.problems.append(document.problem((), f"steps_factor matches in a circle: {circle}", "break it"))
                return None
            try:
                place = load_yaml(self.root / METHODS / f"{other}.yaml", self.root)
            except ConfigError as error:
                self.problems += error.problems
                return None
            method = self._method(other, place, partial, (*trail, name))
            if method is None or training is None:
                return None
            if any(phase.data.task is not None or phase.data.size is not None for phase in method.phases):
                message = f"steps_factor cannot match '{other}', whose phases train on other rows than the cell's"
                self.problems.append(document.problem((), message, "give the factor as a number"))
                return None
            return method_factor(method, training, self.registry)

        method, found = build_method(self.root, name, config, document, self.registry, training, matched)
        self.problems += found
        return method

    def _phase_tasks(self, method: Method, document: Document, tasks: dict[str, TaskConfig]) -> None:
        """Tasks that phases of a method train on."""
        for name, phase in phase_configs(method.config).items():
            wanted = phase.data.task
            if wanted is None:
                continue
            path: KeyPath = (*phase_path(method.config, name), "data", "task")
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
            present = sorted(p.stem for p in (self.root / folder).glob("*.yaml"))
            message = f"unknown {what} '{name}': there is no {file}"
            self.problems.append(place.problem(path, message, suggestion(name, present, f"{what}s there")))
            return None
        try:
            document = load_yaml(self.root / file, self.root)
        except ConfigError as error:
            self.problems += error.problems
            return None
        self.documents[file] = document
        return document


def _names(document: Document, path: KeyPath) -> dict[KeyPath, str]:
    """Well-formed names of a list in ``document``, by place, also when the rest of it is wrong."""
    data: Any = document.data
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    items: Sequence[Any] = data if isinstance(data, list) else ()
    return {(*path, i): item for i, item in enumerate(items) if isinstance(item, str) and is_name(item)}


def _partial(document: Document, problems: Sequence[Problem]) -> Params | None:
    """``params.yaml`` with stand-ins for its wrong sections, so that methods can still be checked.

    None when ``training`` itself is wrong: every method depends on it.
    """
    wrong = {problem.key.split(".")[0].split("[")[0] for problem in problems}
    if "training" in wrong:
        return None
    stand_ins: dict[str, Any] = {
        "model": EncoderConfig(name="minilm", revision=None, max_length=128),
        "grid": GridConfig(tasks=("none",), sizes=("full",), seeds=(0,)),
        "methods": ("none",),
        "subsample": {},
        "report": {},
    }
    right = {name: document.data[name] for name in Params.model_fields if name in document.data and name not in wrong}
    return Params.model_validate({**stand_ins, **right})

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
from regft_core.config.check_methods import build_method, check_composition, missing_controls
from regft_core.config.check_params import EncoderCheck, check_params
from regft_core.config.check_tasks import Builtin, check_task, referenced_tasks
from regft_core.config.explain import validate
from regft_core.config.method import Method, Protocol, is_name
from regft_core.config.names import suggestion
from regft_core.config.parts import parts
from regft_core.config.schema import EncoderConfig, GridConfig, MethodConfig, Params, ProtocolsConfig, TaskConfig
from regft_core.config.yamlio import Document, KeyPath, load_yaml
from regft_core.errors import ConfigError, Problem

__all__ = ["METHODS", "PROTOCOLS", "TASKS", "Builtin", "ComposeCheck", "Method", "Project", "load_project"]

TASKS = "pipelines/tasks"
METHODS = "pipelines/methods"
PROTOCOLS: tuple[Protocol, ...] = ("finetune", "search_finetune")

ComposeCheck = Callable[[Method, TaskConfig, str, Params], list[str]]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Project:
    """A valid project.

    ``tasks`` holds the tasks of the grid and those that only judge them; ``methods`` the listed
    methods in the order of ``params.yaml``. ``warnings`` are for the user to read.
    """

    root: Path
    params: Params
    tasks: dict[str, TaskConfig]
    methods: dict[str, Method]
    warnings: tuple[str, ...] = ()
    documents: dict[str, Document] = field(default_factory=dict, repr=False, compare=False)


def load_project(
    root: Path,
    registry: Mapping[str, Any],
    compose_check: ComposeCheck | None = None,
    *,
    builtin: Builtin | None = None,
    encoder_check: EncoderCheck | None = None,
    params_file: str = "params.yaml",
    params_text: str | None = None,
) -> Project:
    """Read and validate the project at ``root``.

    Args:
        root: project root.
        registry: regulariser name -> class with ``Config``, ``SearchConfig`` (a pydantic model
            or None) and optionally ``search_phase(options) -> bool``.
        compose_check: what speaks against a method on a task; called once per pair. When
            sections of ``params.yaml`` other than ``training`` are wrong, it sees defaults there.
        builtin: options and splits of built-in datasets.
        encoder_check: what speaks against the files of an alias or a local directory.
        params_file: another file in the place of ``params.yaml``, for instance a preset.
        params_text: content to check in place of that file's.

    Raises:
        ConfigError: all problems of all files.
    """
    return _Loader(Path(root), registry, compose_check, builtin, encoder_check).load(params_file, params_text)


class _Loader:
    def __init__(
        self,
        root: Path,
        registry: Mapping[str, Any],
        compose_check: ComposeCheck | None,
        builtin: Builtin | None,
        encoder_check: EncoderCheck | None,
    ) -> None:
        self.root = root
        self.registry = registry
        self.compose_check = compose_check
        self.builtin = builtin
        self.encoder_check = encoder_check
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.documents: dict[str, Document] = {}

    def load(self, params_file: str, params_text: str | None) -> Project:
        document = load_yaml(self.root / params_file, self.root, params_text)
        self.documents[params_file] = document
        params, found = validate(Params, document)
        self.problems += found
        partial = params or _partial(document, found)
        grid_tasks = _names(document, ("grid", "tasks"))
        tasks = self._tasks(document, grid_tasks)
        methods = self._methods(document, partial)
        known = params or parts(Params, document.data)
        problems, warnings = check_params(self.root, known, document, self.encoder_check)
        self.problems += problems
        self.warnings += warnings
        if partial is not None and self.compose_check is not None:
            judged = {name: tasks[name] for name in dict.fromkeys(grid_tasks.values()) if name in tasks}
            for method in methods.values():
                place = self.documents[f"{METHODS}/{method.name}.yaml"]
                self.problems += check_composition(method, judged, partial, self.compose_check, place)
        if self.problems or params is None:
            raise ConfigError(list(dict.fromkeys(self.problems)))
        controls = missing_controls(self.root, methods)
        self.warnings += [str(control) for control in controls.missing] + controls.unreadable
        return Project(self.root, params, tasks, methods, tuple(self.warnings), self.documents)

    # -------------------------------------------------------------------------------- tasks

    def _tasks(self, params: Document, grid: Mapping[KeyPath, str]) -> dict[str, TaskConfig]:
        """Tasks of the grid, then every task that one of them is judged on; all that are right."""
        tasks: dict[str, TaskConfig] = {}
        known: dict[str, TaskConfig] = {}  # wrong ones too, as far as they are right
        seen: set[str] = set()
        wanted = [(name, params, path) for path, name in grid.items()]
        judges: list[tuple[str, Document, KeyPath]] = []
        for name, place, path in wanted:
            document = self._named(TASKS, "task", name, place, path, seen)
            if document is not None:
                judges += [(ood, document, ("ood", ood)) for ood in referenced_tasks(document) if is_name(ood)]
                self._task(document, name, tasks, known)
        for name, place, path in judges:
            document = self._named(TASKS, "task", name, place, path, seen)
            if document is not None:
                self._task(document, name, tasks, known)
        listed = {name: known[name] for name in dict.fromkeys(grid.values()) if name in known}
        for name in listed:
            place = self.documents[f"{TASKS}/{name}.yaml"]
            self.problems += check_task(self.root, name, known, place, self.documents, self.builtin, self.warnings)
        self.problems += check_sizes(params, listed, self.builtin)
        return tasks

    def _task(self, document: Document, name: str, tasks: dict[str, TaskConfig], known: dict[str, TaskConfig]) -> None:
        task, found = validate(TaskConfig, document)
        self.problems += found
        known[name] = task or parts(TaskConfig, document.data)
        if task is not None:
            tasks[name] = task

    # ------------------------------------------------------------------------------ methods

    def _methods(self, params: Document, partial: Params | None) -> dict[str, Method]:
        methods: dict[str, Method] = {}
        training = partial.training if partial is not None else None
        seen: set[str] = set()
        for protocol in PROTOCOLS:
            for path, name in _names(params, ("protocols", protocol)).items():
                document = self._named(METHODS, "method", name, params, path, seen)
                if document is None:
                    continue
                config, found = validate(MethodConfig, document)
                self.problems += found
                known = config or parts(MethodConfig, document.data)
                place = (params, path)
                method, found = build_method(self.root, name, protocol, known, document, place, self.registry, training)
                self.problems += found
                if method is not None and config is not None:
                    methods[name] = method
        return methods

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
        "protocols": ProtocolsConfig(finetune=(), search_finetune=()),
        "subsample": {},
        "report": {},
    }
    right = {name: document.data[name] for name in Params.model_fields if name in document.data and name not in wrong}
    return Params.model_validate({**stand_ins, **right})

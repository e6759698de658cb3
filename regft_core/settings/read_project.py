"""Read and validate a whole project: ``params.yaml``, its tasks and its methods.

Every problem of every file is collected before anything is reported; a wrong ``params.yaml`` is reported alone, since
it says which files the others are. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from regft_core.errors import ConfigError
from regft_core.hooks.registry import discover
from regft_core.schema.method import Method, Registry
from regft_core.schema.params import Params
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.checks.method_errors import (
    check_compositions,
    check_encoders,
    check_layers,
    check_lent,
    check_tuning,
)
from regft_core.settings.checks.params_errors import (
    check_evaluations,
    check_model,
    check_params,
    check_report,
    check_version,
)
from regft_core.settings.checks.task_errors import check_folds
from regft_core.settings.controls import controls_of, described, warnings_of
from regft_core.settings.document import Document, KeyPath, load_yaml
from regft_core.settings.layers import on_task, shared_sections
from regft_core.settings.papers.encoders import read_contamination
from regft_core.settings.project import Project
from regft_core.settings.read_tasks import Reader
from regft_core.settings.small import in_small
from regft_core.settings.validate import validate
from regft_core.settings.yaml_paths import METHODS, PRESETS, method_file, missing, no_project, without_override


def load_project(
    root: Path,
    registry: Registry | None = None,
    *,
    params_file: str = "params.yaml",
    params_text: str | Document | None = None,
    check_composition: bool = True,
) -> Project:
    """Read and validate the project at ``root``.

    Args:
        root: project root.
        registry: regulariser name -> its class in the place of those that there are; these are not composed.
        params_file: another file instead of ``params.yaml``, for instance a preset.
        params_text: content in place of that file's, or what was read of it.
        check_composition: whether every method must be able to act on every task of the grid.

    Raises:
        ConfigError: all problems of all files.
    """
    root, check_composition = Path(root), check_composition and registry is None
    registry = discover() if registry is None else registry
    if params_text is None and params_file == "params.yaml" and not (root / params_file).exists():
        raise ConfigError([no_project(root)])
    document = params_text if isinstance(params_text, Document) else load_yaml(root / params_file, root, params_text)
    if params_file.startswith(PRESETS):
        document = without_override(document)
    warnings = check_version(document)
    params, problems = validate(Params, document)
    problems += shared_sections(document)[2] if params is not None else []
    if params is None or problems:
        raise ConfigError(problems)

    reader = Reader(root, document, params.ood)
    reader.warnings += warnings
    grid = reader.read_grid(document, params.grid.tasks)
    shared: dict[str | None, Document] = {None: document}

    def shared_on(task: str | None) -> Document:
        if task not in shared:
            file = reader.document(str(task))
            shared[task] = on_task(document, str(task), file and in_small(file, params))
        return shared[task]

    builder = MethodBuilder(root, registry, document, params, shared_on)
    methods = _read_methods(reader, builder)
    reader.note(check_params(root, params, document))
    reader.note(check_folds(params, document, grid))
    reader.note(check_layers(builder, params, document))
    reader.note(check_report(params, document, grid, reader.left_out))
    found, read = check_evaluations(params, document, grid)
    reader.note(found)
    for path, name in read.items():
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
    trials: dict[str, list[Method]] = {}
    if params.tuning is not None:
        problems, trials = check_tuning(params.tuning, methods, params.methods, builder)
        reader.note(problems)
    for name, method in methods.items():
        place = reader.documents[method_file(name)]
        for task in grid:
            on_this, file = changed.get((name, task), method), builder.document(name, task) or place
            reader.note(check_encoders(root, on_this, file, shared_on(task)))
        if check_composition:
            # Where a task changes the method, its trials are laid over that: they are other methods than these.
            tried = {
                task: [changed[name, task]] if (name, task) in changed else [method, *trials.get(name, ())]
                for task in grid
            }
            every = {task: config for task, config in reader.tasks.items() if task in sections}
            reader.note(check_compositions(builder, tried, grid, every, sections, place))
    try:
        seen = read_contamination(root)
    except ConfigError as error:
        reader.note(error.problems)
    if reader.problems:
        raise ConfigError(list(dict.fromkeys(reader.problems)))

    for task, config in grid.items():
        sets = list(config.ood)
        encoders = {sections[task][1].name: shared_on(task).place(("model", "name"))}
        for name, method in methods.items():
            for phase in method.phases:
                if "name" in phase.model:
                    at = ("phases", phase.name, "model", "name")
                    encoders.setdefault(phase.model["name"], reader.documents[method_file(name)].place(at))
        for encoder, where in encoders.items():
            for text in seen.sentences(encoder, task, sets):
                reader.warnings.append(f"{where}: {text}")
    controls = controls_of(builder, methods)
    reader.warnings += warnings_of(builder, methods, controls)
    return Project(
        root,
        params,
        reader.tasks,
        described(methods, controls),
        builder,
        tuple(dict.fromkeys(reader.warnings)),
        reader.documents,
        changed,
        sections,
        controls,
        {name: sets for name, sets in reader.left_out.items() if sets},
    )


def _read_methods(reader: Reader, builder: MethodBuilder) -> dict[str, Method]:
    """Read the listed methods, and the tasks that their phases train on; return those without a mistake."""
    methods: dict[str, Method] = {}
    for i, name in enumerate(builder.settings.methods):
        path: KeyPath = ("methods", i)
        try:
            document = builder.document(name)
            if document is None:
                if builder.base(name) == name:  # else it is an arm without a base: check_layers says so
                    reader.problems.append(missing(reader.root, METHODS, name, builder.params, path))
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
        layers = own.methods.keys() if own is not None else set[str]()
        other = builder.shared(task).data["training"] != shared
        for name, method in methods.items():
            if not (other or layers & builder.behind(name)):
                continue
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
    """Read the tasks whose rows phases of a method train on."""
    for phase in method.phases:
        if phase.data.task is not None:
            at = ("phases", phase.name, "data", "task")
            reader.read_training_rows(phase.data.task, document, at, "train a phase on")

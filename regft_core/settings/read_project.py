"""Read and validate a whole project: ``params.yaml``, its tasks and its methods.

Every problem of every file is collected before anything is reported; a wrong ``params.yaml`` is reported alone, since
it says which files the others are. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from regft_core.errors import ConfigError
from regft_core.hooks.registry import discover
from regft_core.schema.method import Method, Registry
from regft_core.schema.params import Params
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.checks.builtin_tasks import check_sizes
from regft_core.settings.checks.compositions import check_compositions
from regft_core.settings.checks.evaluations import check_evaluations, named_tasks
from regft_core.settings.checks.folds import check_folds
from regft_core.settings.checks.params import check_params, check_version
from regft_core.settings.checks.report_sets import check_averages, check_decide_by
from regft_core.settings.checks.scales import odd_methods
from regft_core.settings.checks.settings import check_layers, check_lengths
from regft_core.settings.document import Document, KeyPath, load_yaml
from regft_core.settings.files import METHODS, PRESETS, method_file, missing, without_override
from regft_core.settings.find_controls import find_controls, lacking, with_twins
from regft_core.settings.layers import on_task, shared_sections
from regft_core.settings.papers.contamination import read_contamination, sentences
from regft_core.settings.phases import encoder_problems
from regft_core.settings.project import Project
from regft_core.settings.read_tasks import TaskReader
from regft_core.settings.reading import Reading
from regft_core.settings.trial_values import check_tuning
from regft_core.settings.validate import validate


def load_project(
    root: Path,
    registry: Registry | None = None,
    *,
    params_file: str = "params.yaml",
    params_text: str | None = None,
    check_composition: bool = True,
) -> Project:
    """Read and validate the project at ``root``.

    Args:
        root: project root.
        registry: regulariser name -> its class in the place of those that there are; these are not composed.
        params_file: another file instead of ``params.yaml``, for instance a preset.
        params_text: content to check in place of that file's.
        check_composition: whether every method must be able to act on every task of the grid.

    Raises:
        ConfigError: all problems of all files.
    """
    root, check_composition = Path(root), check_composition and registry is None
    registry = discover() if registry is None else registry
    document = load_yaml(root / params_file, root, params_text)
    if params_file.startswith(PRESETS):
        document = without_override(document)
    reading = Reading(root, {params_file: document})
    reading.warnings += check_version(document)
    params, problems = validate(Params, document)
    problems += shared_sections(document)[2] if params is not None else []
    if params is None or problems:
        raise ConfigError(problems)

    tasks = TaskReader(reading, params.ood)
    grid = tasks.read_grid(document, {("grid", "tasks", i): name for i, name in enumerate(params.grid.tasks)})
    shared: dict[str | None, Document] = {None: document}

    def shared_on(task: str | None) -> Document:
        if task not in shared:
            shared[task] = on_task(document, str(task), tasks.document(str(task)))
        return shared[task]

    builder = MethodBuilder(root, registry, document, params, shared_on)
    methods = _read_methods(reading, builder, tasks)
    reading.note(check_sizes(document, grid))
    reading.note(*check_params(root, params, document))
    reading.note(*check_folds(params, document, grid))
    reading.note(check_layers(builder, params, document))
    reading.note(*check_averages(params, document, grid, tasks.left_out))
    reading.note(check_decide_by(params, document, grid))
    reading.note(*check_evaluations(params, document, grid))
    for path, name in named_tasks(document).items():
        tasks.read_training_rows(name, document, path, "read rows of")
    sections = {}
    for name in tasks.tasks:
        training, model, problems = shared_sections(shared_on(name))
        reading.note(problems)
        if training is not None and model is not None:
            sections[name] = (training, model)
    changed = _on_tasks(builder, tasks, methods, grid)
    grid = {name: task for name, task in grid.items() if name in sections}
    reading.note(check_lengths(root, params, shared_on, {name: sections[name][1] for name in grid}))

    trials: dict[str, list[Method]] = {}
    if params.tuning is not None:
        problems, trials = check_tuning(params.tuning, methods, params.methods, builder)
        reading.note(problems)
    for name, method in methods.items():
        place = reading.documents[method_file(name)]
        reading.note(encoder_problems(method, place, params.model))
        if check_composition:
            own = {task: other for (of, task), other in changed.items() if of == name}
            every = {task: config for task, config in tasks.tasks.items() if task in sections}
            reading.note(
                check_compositions(registry, method, own, trials.get(name, ()), grid, every, params, sections, place)
            )
    reading.note(builder.problems)
    try:
        seen = read_contamination(root)
    except ConfigError as error:
        reading.note(error.problems)
    if reading.problems:
        raise ConfigError(list(dict.fromkeys(reading.problems)))

    for task, config in grid.items():
        sets = list(config.ood)
        for text in sentences(params.model.name, task, seen.of(params.model.name, [task, *sets]), sets):
            reading.warnings.append(f"{document.place(('model', 'name'))}: {text}")
    reading.warnings += dict.fromkeys(builder.warnings)
    plain = {"vanilla", params.report.reference, *(params.tuning.methods if params.tuning is not None else ())}
    odd = odd_methods(methods, list(changed.values()), params.training, plain)
    reading.warnings += [f"{params_file}: {text}" for text in odd]
    controls = find_controls(builder, methods)
    reading.warnings += [f"{params_file}: {text}" for text in lacking(controls.missing)]
    return Project(
        root,
        params,
        tasks.tasks,
        with_twins(methods, controls),
        builder,
        tuple(reading.warnings),
        reading.documents,
        changed,
        sections,
        controls,
        {name: sets for name, sets in tasks.left_out.items() if sets},
    )


def _read_methods(reading: Reading, builder: MethodBuilder, tasks: TaskReader) -> dict[str, Method]:
    """Read the listed methods, and the tasks that their phases train on; return those without a mistake."""
    methods: dict[str, Method] = {}
    for i, name in enumerate(builder.settings.methods):
        path: KeyPath = ("methods", i)
        try:
            document = builder.document(name)
        except ConfigError as error:
            reading.problems += error.problems
            continue
        if document is None:
            own = builder.settings.method_settings.get(name)
            if own is not None and own.base is not None:
                continue  # an arm without a base: check_layers says so
            problem = missing(reading.root, METHODS, name, builder.params, path, builder.near(name))
            if name in builder.registry:
                hint = f"there is a regulariser of that name: write the file, with 'regularisers: {{{name}: {{}}}}'"
                problem = replace(problem, hint=hint)
            reading.problems.append(problem)
            continue
        reading.documents[method_file(name)] = document
        method = builder.build(name, document)
        if method is not None:
            methods[name] = method
            _read_rows(tasks, method, document)
    return methods


def _on_tasks(
    builder: MethodBuilder, tasks: TaskReader, methods: Mapping[str, Method], grid: Mapping[str, object]
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
            on_this = builder.build(name, document, task) if document is not None else None
            if document is not None and on_this is not None and on_this != method:
                changed[name, task] = on_this
                _read_rows(tasks, on_this, document)
    return changed


def _read_rows(tasks: TaskReader, method: Method, document: Document) -> None:
    """Read the tasks whose rows phases of a method train on."""
    for phase in method.phases:
        if phase.data.task is not None:
            at = ("phases", phase.name, "data", "task")
            tasks.read_training_rows(phase.data.task, document, at, "train a phase on")

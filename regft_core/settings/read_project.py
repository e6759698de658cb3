"""Read and validate a whole project: ``params.yaml``, its tasks and its methods.

Every problem of every file is collected before anything is reported. No torch here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.schema import StrictModel
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import Method, Registry, is_name
from regft_core.schema.params import GridConfig, Params
from regft_core.schema.training import TrainingConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.checks.builtin_tasks import Builtin, check_sizes
from regft_core.settings.checks.compositions import ComposeCheck, check_compositions
from regft_core.settings.checks.evaluations import FindEvaluation, check_evaluations, named_tasks
from regft_core.settings.checks.folds import check_folds
from regft_core.settings.checks.methods import encoder_problems
from regft_core.settings.checks.params import EncoderCheck, check_params
from regft_core.settings.checks.report_sets import check_averages, check_decide_by
from regft_core.settings.checks.scales import odd_methods
from regft_core.settings.checks.settings import check_settings
from regft_core.settings.difference import Settle
from regft_core.settings.files import PRESETS, method_file, without_override
from regft_core.settings.find_controls import find_controls, lacking, with_twins
from regft_core.settings.messages.explain import validate
from regft_core.settings.papers.contamination import read_contamination, sentences
from regft_core.settings.project import Project
from regft_core.settings.read_methods import MethodReader
from regft_core.settings.read_tasks import TaskReader
from regft_core.settings.reading import Reading
from regft_core.settings.settings import training_of
from regft_core.settings.trial_values import check_tuning
from regft_core.settings.version import check_version
from regft_core.settings.yaml.document import Document, KeyPath, load_yaml
from regft_core.settings.yaml.valid_parts import parts


def load_project(
    root: Path,
    registry: Registry,
    compose_check: ComposeCheck | None = None,
    *,
    builtin: Builtin | None = None,
    encoder_check: EncoderCheck | None = None,
    find_evaluation: FindEvaluation | None = None,
    settle: Settle = lambda phase, _: phase.training,
    params_file: str = "params.yaml",
    params_text: str | None = None,
) -> Project:
    """Read and validate the project at ``root``.

    Args:
        root: project root.
        registry: regulariser name -> its class.
        compose_check: errors of a method on a task, given all tasks; called once per pair. When
            sections of ``params.yaml`` other than ``training`` are wrong, it sees defaults there.
        builtin: options and splits of built-in datasets.
        encoder_check: errors in the files of an alias or a local directory.
        find_evaluation: looks up what an evaluation declares; without it only their names are checked.
        settle: the protocol that a phase runs under once its regularisers have been asked.
        params_file: another file instead of ``params.yaml``, for instance a preset.
        params_text: content to check in place of that file's.

    Raises:
        ConfigError: all problems of all files.
    """
    root = Path(root)
    document = load_yaml(root / params_file, root, params_text)
    if params_file.startswith(PRESETS):
        document = without_override(document)
    reading = Reading(root, {params_file: document})
    reading.warnings += check_version(document)
    params, found = validate(Params, document)
    reading.note(found)
    partial, wrong = (params, set()) if params is not None else _partial(document, found)
    known = params or parts(Params, document.data)

    tasks = TaskReader(reading, builtin, partial.ood)
    grid = tasks.read_grid(document, _names(document, ("grid", "tasks")))
    reading.note(check_sizes(document, grid, builtin))
    builder = MethodBuilder(root, registry, document, partial, exact="training" not in wrong, settle=settle)
    methods = MethodReader(reading, builder, tasks)
    method_names = _names(document, ("methods",))
    methods.read_listed(document, method_names)
    reading.note(*check_params(root, known, document, encoder_check))
    reading.note(*check_folds(known, document, grid))
    reading.note(check_settings(builder, known, document, grid, reading.documents, encoder_check))
    methods.read_on_tasks(grid)

    trials: dict[str, list[Method]] = {}
    if partial.tuning is not None:
        other = {name: training_of(partial, tasks.right, name) for name in tasks.right}
        listed = list(method_names.values())
        wrong_trials, trials = check_tuning(partial.tuning, methods.right, listed, builder, partial.training, other)
        reading.note(wrong_trials)
    reading.note(*check_averages(known, document, grid, tasks.left_out))
    reading.note(check_decide_by(known, document, grid))
    reading.note(*check_evaluations(known, document, grid, find_evaluation))
    for path, name in named_tasks(document, find_evaluation).items():
        tasks.read_training_rows(name, document, path, "read rows of")

    judged = {name: tasks.right[name] for name in grid if name in tasks.right}
    for name, method in methods.right.items():
        place = reading.documents[method_file(name)]
        if "model" not in wrong:
            reading.note(encoder_problems(method, partial.model, place))
        if compose_check is not None:
            changed = {task: own for (of, task), own in methods.on_task.items() if of == name}
            tried = trials.get(name, ())
            reading.note(check_compositions(method, changed, tried, judged, tasks.right, partial, compose_check, place))
    reading.note(builder.problems)
    try:
        seen = read_contamination(root)
    except ConfigError as error:
        reading.note(error.problems)
    if reading.problems or params is None:
        raise ConfigError(list(dict.fromkeys(reading.problems)))

    for task in params.grid.tasks:
        sets = list(tasks.right[task].ood)
        for text in sentences(params.model.name, task, seen.of(params.model.name, [task, *sets]), sets):
            reading.warnings.append(f"{params_file}:{document.line(('model', 'name'))}: {text}")
    reading.warnings += dict.fromkeys(builder.warnings)
    plain = {"vanilla", params.report.reference, *(params.tuning.methods if params.tuning is not None else ())}
    odd = odd_methods(methods.right, list(methods.on_task.values()), partial.training, plain)
    reading.warnings += [f"{params_file}: {text}" for text in odd]
    controls = find_controls(builder, methods.right, methods.shared_for(None))
    reading.warnings += [f"{params_file}: {text}" for text in lacking(controls.missing)] + controls.unreadable
    return Project(
        root,
        params,
        tasks.right,
        with_twins(methods.right, controls),
        tuple(reading.warnings),
        reading.documents,
        methods.on_task,
        builder,
        controls,
        {name: out for name, out in tasks.left_out.items() if out},
    )


def _names(document: Document, path: KeyPath) -> dict[KeyPath, str]:
    """Well-formed names of a list in ``document``, by place, also when the rest of it is wrong."""
    items = enumerate(document.items(path))
    return {(*path, i): item for i, item in items if isinstance(item, str) and is_name(item)}


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

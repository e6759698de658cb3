"""What a preset runs, setting by setting, and where that is not what its protocol says.

Settings are those of the resolved preset: a dotted path, and a value for each task.

- ``model.*`` and ``training.*``: the shared sections with what the task changes. What counts for nothing is left out
  (``epochs`` beside ``max_steps``; a learning rate that every method tunes).
- ``methods.<name>.*``: a method's own settings, as they run on the task; what is tuned, and controls that regft
  derives, are left out.
- ``tuning.<name>.<setting>``: the values that are tried for a method; ``tuning.selection`` and the section's rest.
- ``task.dev``, ``task.primary``, ``task.ood.<set>.*``: what judges a run, and the metric that chooses.
- ``evaluations.<name>.<option>``: what an evaluation is asked for.
- ``grid.*``, ``methods``, ``subsample.*``, ``ood`` (unless all), ``report.averages.*``: of the whole preset, without a
  task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from regft_core.hooks.base import Regulariser
from regft_core.schema.method import Method, Phase
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import ONLY_STEPS_READ, TrainingConfig
from regft_core.settings.derived import settings_of
from regft_core.settings.document import dotted, leaves
from regft_core.settings.preset import preset_file
from regft_core.settings.project import Project, trials_of
from tests.papers.protocols import ORIGINS, Item, matches
from tests.small_project import preset

#: Path -> task -> value; the task is empty for a setting of the whole preset.
Settings = dict[str, dict[str, Any]]

#: Declared for every preset, also where the preset leaves them at their defaults.
REQUIRED = (
    *("model.name", "model.max_length", "grid.tasks", "grid.sizes", "grid.seeds", "methods", "tuning.selection"),
    *("task.dev", "task.primary", "training.epochs", "training.max_steps", "training.batch_size"),
    *("training.accumulation", "training.learning_rate", "training.optimizer", "training.betas", "training.epsilon"),
    *("training.weight_decay", "training.schedule", "training.warmup_ratio", "training.warmup_steps"),
    *("training.clip_norm", "training.precision", "training.checkpoint"),
)
#: Keys of an arm without a file that describe it.
_DESCRIBE = ("base", "description", "paper", "control_for", "differs_in", "variant_of")
_REST = ("trials", "split")


@cache
def resolved(name: str) -> Settings:
    """Every setting of a preset that decides its result; worked out once for all tests."""
    project = preset(name)
    params, tasks = project.params, project.params.grid.tasks
    found: Settings = {"methods": {"": list(params.methods)}}
    if params.ood != "all":
        found["ood"] = {"": _plain(params.ood)}
    sections = params.model_dump(mode="json", include={"grid", "subsample"})
    found |= {path: {"": value} for path, value in _leaves(sections)}
    found |= {f"report.averages.{name}": {"": _plain(of)} for name, of in params.report.averages.items()}
    evaluations = _leaves({"evaluations": params.evaluations})
    found |= {path: {"": _plain(value)} for path, value in evaluations if path != "evaluations"}
    found |= dict(_tuning(project))
    own_rate = any(f"tuning.{name}.training.learning_rate" not in found for name in params.methods)
    for task in tasks:
        model = project.model(task).model_dump(mode="json", exclude={"revision"})
        _note(found, task, ((f"model.{key}", value) for key, value in model.items()))
        training = dict(_training(project.shared(task)))
        if not own_rate:
            del training["training.learning_rate"]
        _note(found, task, training.items())
        _note(found, task, _judging(project, task))
        for name in _arms(project):
            own = _method(project, project.method(name, task), task).items()
            fixed = ((path, value) for path, value in own if f"tuning.{name}.{path}" not in found)
            _note(found, task, ((f"methods.{name}.{path}", value) for path, value in fixed))
    return found


def _note(found: Settings, task: str, values: Iterable[tuple[str, Any]]) -> None:
    for path, value in values:
        found.setdefault(path, {})[task] = _plain(value)


def _plain(value: Any) -> Any:
    return to_jsonable_python(value)


def _training(training: TrainingConfig) -> Iterator[tuple[str, Any]]:
    values = training.model_dump(mode="json")
    idle = {"epochs" if training.max_steps is not None else "max_steps"}
    idle.add("warmup_ratio" if training.warmup_steps is not None else "warmup_steps")
    idle |= {"checkpoint_share"} if training.checkpoint != "best_on_split" else set()
    yield from ((f"training.{key}", value) for key, value in _leaves(values) if key not in idle)


def _judging(project: Project, task: str) -> Iterator[tuple[str, Any]]:
    config = project.tasks[task]
    yield "task.dev", config.splits.dev
    yield "task.primary", config.primary
    yield "task.keyword_segment", config.keyword_segment
    for name, ood in config.ood.items():
        other: TaskConfig | None = project.tasks.get(name)
        yield f"task.ood.{name}.split", ood.split or (other.splits.dev if other is not None else None)
        yield f"task.ood.{name}.label_map", ood.label_map


def _arms(project: Project) -> list[str]:
    """The listed methods without the controls that regft derives, whose difference it writes itself."""
    return [name for name in project.params.methods if project.builder.derivation(project.builder.base(name)) is None]


def _method(project: Project, method: Method, task: str) -> dict[str, Any]:
    registry = project.builder.registry
    found = settings_of(method, registry)
    idle = {f"training.{name}" for name in ONLY_STEPS_READ} if found.get("training.epochs") == 0 else set[str]()
    for phase in method.phases:
        start = "" if phase is method.finetune else f"phases.{phase.name}."
        for name, options in phase.regularisers:
            unused = (option for option, _ in options if has_no_effect(registry[name], options, option, phase))
            idle |= {f"{start}regularisers.{name}.{option}" for option in unused}
    return {path: value for path, value in found.items() if path not in idle}


def has_no_effect(method: type[Regulariser], options: BaseModel, option: str, phase: Phase) -> bool:
    """Whether the method refuses an option that has its value already, because it would be idle if it were written."""
    written = {**options.model_dump(exclude_unset=True), option: getattr(options, option)}
    return len(method.check_options(type(options).model_validate(written), phase)) > len(
        method.check_options(options, phase)
    )


def _tuning(project: Project) -> Iterator[tuple[str, dict[str, Any]]]:
    tuning = project.params.tuning
    yield "tuning.selection", {"": tuning.selection if tuning is not None else None}
    if tuning is None:
        return
    yield from ((f"tuning.{key}", {"": getattr(tuning, key)}) for key in _REST if key in tuning.model_fields_set)
    every = tuning.model_copy(update={"trials": None})
    for name in project.params.methods:
        trials = trials_of(every, project.methods[name])
        if isinstance(tuning.methods.get(name), list):
            yield f"tuning.{name}", {"": trials}
            continue
        for key in dict.fromkeys(key for trial in trials for key in trial):
            tried: list[Any] = []
            tried += (trial[key] for trial in trials if key in trial and trial[key] not in tried)
            yield f"tuning.{name}.{key}", {"": tried}


def _leaves(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((dotted(path), value) for path, value in leaves(data))


def named(data: Mapping[str, Any]) -> set[str]:
    """The settings that the file of a preset names, as paths of :func:`resolved`; those of ``tuning`` are others."""
    found = {path for path, _ in _leaves({key: data[key] for key in ("grid", "subsample") if key in data})}
    layers = [data, *data.get("task_settings", {}).values()]
    for layer in layers:
        sections = {key: layer[key] for key in ("model", "training") if key in layer}
        found |= {path for path, _ in _leaves(sections)} - {"model.revision"}
    of_tasks = [(name, own) for layer in layers[1:] for name, own in layer.get("methods", {}).items()]
    for name, own in (*data.get("method_settings", {}).items(), *of_tasks):
        kept = {key: value for key, value in own.items() if key not in _DESCRIBE}
        found |= {f"methods.{name}.{path.removeprefix('phases.finetune.')}" for path, _ in _leaves(kept)}
    found |= {"ood"} & set(data)
    return found | {f"report.averages.{name}" for name in data.get("report", {}).get("averages", {})}


def _own_protocol(project: Project, settings: Settings) -> Iterator[str]:
    """Values of ``training`` in which a method, unless it is a control, runs something else than the shared ones."""
    for name in _arms(project):
        for key in (path for path in settings if path.startswith("training.")):
            own = settings.get(f"methods.{name}.{key}", {})
            if any(task in own and not _same(own[task], value) for task, value in settings[key].items()):
                yield f"methods.{name}.{key}"


def check_preset(item: Item, name: str) -> list[str]:
    """Settings of a preset that its protocol leaves out or says otherwise, and settings that change nothing."""
    project, settings = preset(name), resolved(name)
    own = named(project.documents[preset_file(project.root, name)].data)
    problems = [f"{name}: {path} has no effect" for path in sorted(own - set(settings))]
    demanded = {*own, *REQUIRED, *_own_protocol(project, settings)}
    options = f".regularisers.{item.paper.config.method}."
    for path, values in settings.items():
        for task, value in values.items():
            said = item.value(name, path, task)
            if said is not None and not _same(said.of(task), value):
                problems.append(f"{name}: {path} = {value!r} on {task}, declared {said.of(task)!r}")
            elif said is None and (path in demanded or path.startswith(("tuning.", "evaluations.")) or options in path):
                problems.append(f"{name}: {path} = {value!r} on {task}, undeclared")
    return problems


def origins(item: Item) -> dict[str, list[str]]:
    """Paths of the item's settings by where they are from: those of ``ORIGINS``."""
    found: dict[str, dict[str, None]] = {origin: {} for origin in ORIGINS}
    for name in item.config.presets:
        for path, values in resolved(name).items():
            for task in values:
                if (said := item.value(name, path, task)) is not None:
                    found[said.origin][path] = None
    return {origin: list(paths) for origin, paths in found.items()}


def unknown_settings(item: Item) -> list[str]:
    """Settings and tasks of an item's file that none of its presets has."""
    known = {name: resolved(name) for name in item.config.presets}
    problems = []
    parts = [(item.config.values, list(known)), *((values, [one]) for one, values in item.config.per_preset.items())]
    for values, presets in parts:
        paths = {path for name in presets for path in known[name]}
        tasks = {task for name in presets for own in known[name].values() for task in own}
        problems += [f"no preset has {key}" for key in values if not any(matches(key, path, tasks) for path in paths)]
        problems += [
            f"{key}: no task {task}" for key, value in values.items() for task in value.on if task not in tasks
        ]
    return problems


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)

"""Layers of settings, laid over each other before anything is validated, and where each value came from.

From weak to strong: ``training`` and ``model`` of ``params.yaml``, the task's own file, ``task_settings.<task>``, the
method's file, ``method_settings.<method>``, ``task_settings.<task>.methods.<method>``, a tuned value.

A method's setting has one of three sources, in this order: the entry for its path in the method's file; for a default,
that of the regulariser's class; the file's entry for the nearest section above it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from regft_core.errors import ConfigError, Problem
from regft_core.schema import Size
from regft_core.schema.methods import SECTIONS, WORDS, MethodConfig
from regft_core.schema.params import Params
from regft_core.schema.training import EncoderConfig, TrainingConfig
from regft_core.settings.document import Document, KeyPath, Place, dotted, leaves
from regft_core.settings.validate import validate
from regft_core.settings.yaml_paths import method_file

if TYPE_CHECKING:
    from regft_core.schema.method import Phase
    from regft_core.settings.project import Project

#: Section -> key -> what it replaces where the same layer does not say it: weaker ways to say a length of training,
#: and the commit of another encoder.
_REPLACES: dict[str, dict[str, tuple[str, ...]]] = {
    "training": {
        "epochs": ("max_steps", "steps_factor"),
        "max_steps": ("steps_factor",),
        "warmup_ratio": ("warmup_steps",),
    },
    "model": {"name": ("revision",)},
}


def lay(base: Document, over: Document, at: KeyPath = (), to: str = "", skip: Collection[str] = ()) -> Document:
    """Return ``base`` with the mapping that stands at ``at`` in ``over`` laid over its section ``to``, key by key.

    Mappings are merged; anything else is replaced. ``skip``: keys of the layer that are left out. Where either is no
    mapping, ``base`` comes back as it is.
    """
    target, layer, places = base.data.get(to, {}) if to else base.data, over.value(at), dict(base.places)
    if not isinstance(target, dict) or not isinstance(layer, dict):
        return base

    def merge(target: Mapping[str, Any], layer: Mapping[str, Any], path: KeyPath, source: KeyPath) -> dict[str, Any]:
        replaces = _REPLACES.get(str(path[-1]) if path else "", {})
        replaced = {name for key in layer for name in replaces.get(key, ())} - layer.keys()
        merged = {key: value for key, value in target.items() if key not in replaced}
        for key, value in layer.items():
            here, there = (*path, key), (*source, key)
            places[here] = over.place(there)
            if isinstance(value, dict) and isinstance(merged.get(key), dict):
                merged[key] = merge(merged[key], value, here, there)
                continue
            for below in _below(merged.get(key)):
                places.pop((*here, *below), None)
            merged[key] = value
            places.update({(*here, *below): over.place((*there, *below)) for below in _below(value)})
        return merged

    layer = {key: value for key, value in layer.items() if key not in skip}
    merged = merge(target, layer, (to,) if to else (), at)
    return Document({**base.data, to: merged} if to else merged, places, base.file)


def _below(value: Any) -> Iterator[KeyPath]:
    """Yield the paths of everything inside a mapping or a list."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (key,)
        yield from ((key, *path) for path in _below(inner))


def paths(data: Mapping[str, Any]) -> list[str]:
    """The dotted path of every section and every value of a method's file, in its order."""
    below = _below({key: data[key] for key in SECTIONS if key in data})
    return [dotted(path) for path in below if all(isinstance(part, str) for part in path)]


def from_dotted(values: Mapping[str, Any], place: Callable[[str], Place]) -> Document:
    """Return dotted settings, each at its ``place``. Raises ConfigError for a setting inside of another one."""
    places: dict[KeyPath, Place] = {}
    for path in values:
        parts, where = path.split("."), place(path)
        if inner := next((other for other in values if other.startswith(f"{path}.")), None):
            message, hint = f"'{inner}' is a part of '{path}'", "name the parts, or the whole"
            raise ConfigError([Problem("keys-overlap", where.file, where.line, dotted(where.path), message, hint)])
        places |= dict.fromkeys((tuple(parts[:end]) for end in range(1, len(parts) + 1)), where)
    return Document(nested(values), places, "params.yaml")


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"training.learning_rate": 1e-5}`` as nested mappings."""
    nest: dict[str, Any] = {}
    for path, value in values.items():
        *parents, last = path.split(".")
        target = nest
        for part in parents:
            target = target.setdefault(part, {})
        target[last] = value
    return nest


def on_task(params: Document, task: str, file: Document | None) -> Document:
    """Return ``params.yaml`` with ``training`` and ``model`` as a task changes them; ``file`` is the task's."""
    for section in ("training", "model"):
        if file is not None:
            params = lay(params, file, (section,), section)
        params = lay(params, params, ("task_settings", task, section), section)
    return params


def shared_sections(document: Document) -> tuple[TrainingConfig | None, EncoderConfig | None, list[Problem]]:
    """Return the protocol and the encoder that all methods share on a task, and what is wrong with them."""
    training, problems = validate(TrainingConfig, document, ("training",))
    model, more = validate(EncoderConfig, document, ("model",))
    if training is not None and training.epochs == 0:
        message, hint = "is 0 (a whole number); allowed: at least 1", "only a method may train nothing"
        more.append(document.problem("invalid-value", ("training", "epochs"), message, hint))
    return training, model, problems + more


def sizes_of(params: Params, task: str) -> tuple[Size, ...]:
    """Return the training sizes of a task of the grid: its own, else those of the grid."""
    own = params.task_settings.get(task)
    return params.grid.sizes if own is None or own.sizes is None else own.sizes


def all_sizes(params: Params) -> list[Size]:
    """Return every training size of a task of the grid, once, in order."""
    return list(dict.fromkeys(size for task in params.grid.tasks for size in sizes_of(params, task)))


def settings_lines(project: Project) -> list[str]:
    """Return a line per layer that changes something, weakest first: each value with the file and line it came from."""
    builder, tasks = project.builder, project.params.grid.tasks
    changed = [(f"every method on {task}", _changed(builder.shared(task), builder.params)) for task in tasks]
    for name in project.methods:
        base, document = builder.base(name), builder.document(name)
        who = name if base == name else f"{name} (an arm of {base})"
        changed.append((who, _changed(document, builder.source(base))))
    for task in tasks:
        for name in project.methods:
            changed.append((f"{name} on {task}", _changed(builder.document(name, task), builder.document(name))))
    return [f"  {who}: {', '.join(values) or 'as it is'}" for who, values in changed if values or "(an arm" in who]


def _changed(document: Document | None, base: Document | None) -> list[str]:
    """Return ``key value (file:line)`` of everything that a layer over ``base`` sets."""
    assert document is not None
    assert base is not None
    return [
        f"{dotted(path)} {_plain(value)} ({document.place(path)})"
        for path, value in leaves(document.data)
        if path[0] not in WORDS and document.place(path) != base.place(path)
    ]


def place_in(project: Project, name: str, phase: Phase, message: str) -> str | None:
    """``file:line`` of the option that a message about a phase of a method starts with (``lora.targets: ...``)."""
    key = tuple(message.partition(":")[0].split("."))
    name = name if phase.lent is None else phase.lent.method
    file = project.documents.get(method_file(name))
    if file is None or key[0] not in dict(phase.regularisers):
        return None
    return str(file.place((*project.methods[name].config.path(phase.run_name), "regularisers", *key)))


def described(values: Mapping[str, Any]) -> str:
    """Dotted settings as a line: ``training.learning_rate 1e-05, regularisers.hype.scale 0.0001``."""
    return ", ".join(f"{key} {_plain(value)}" for key, value in values.items())


def _plain(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Setting:
    """One value of a method: its dotted path in the file, and its source; a default is not ``given``."""

    path: str
    value: Any
    source: str
    given: bool


def settings(method: Any, registry: Mapping[str, Any]) -> list[Setting]:
    """Settings of a method, or of a report's ``config`` and ``phases``: its options, then what else its file sets."""
    config: MethodConfig = method.config
    data = config.model_dump(mode="json", exclude_unset=True, include=set(SECTIONS))
    names = {phase.name for phase in method.phases}
    found: dict[str, Setting] = {}
    for phase in (phase for phase in method.phases if phase.lent is None):
        at = config.path(phase.name)
        for name, options in phase.regularisers:
            defaults = registry[name].sources if name in registry else {}
            for option, value in options.model_dump(mode="json").items():
                path = dotted((*at, "regularisers", name, option))
                given = option in options.model_fields_set
                if given and isinstance(value, str) and value in names:
                    continue
                default = type(options).model_fields[option].get_default(call_default_factory=True)
                inherited = defaults.get(option, "") if value == to_jsonable_python(default) else ""
                own = config.sources.get(path, "") or ("" if inherited or not given else _above(path, config.sources))
                found[path] = Setting(path, value, own or inherited, given)
    for keys, value in leaves(data):
        path, wiring = dotted(keys), keys[-1] == "start" and value in names
        if "regularisers" not in keys and value != {} and not wiring:
            own = config.sources.get(path, "") or _above(path, config.sources)
            found[path] = Setting(path, value, own, True)
    return list(found.values())


def _above(path: str, sources: Mapping[str, str]) -> str:
    """The source of the nearest section that ``path`` is in."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in sources:
            return sources[path]
    return ""

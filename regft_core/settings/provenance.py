"""Where settings come from: the layer and line of a value, for the dry run and for messages; the source of a value.

A method's setting has one of three sources, in this order: the entry for its path in the method's file; for a default,
that of the regulariser's class; the file's entry for the nearest section above it. A value that names another phase of
the method is wiring, not a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from regft_core.schema.methods import SECTIONS, WORDS, MethodConfig
from regft_core.settings.document import Document, dotted, leaves
from regft_core.settings.yaml_paths import method_file

if TYPE_CHECKING:
    from regft_core.schema.method import Phase
    from regft_core.settings.project import Project


def settings_lines(project: Project) -> list[str]:
    """Return a line per layer that changes something, weakest first: each value with the file and line it came from."""
    builder, tasks = project.builder, project.params.grid.tasks
    changed = [(f"every method on {task}", _changed(builder.shared(task), builder.params)) for task in tasks]
    for name in project.methods:
        base, document = builder.base(name), builder.document(name)
        changed.append(
            (name if base == name else f"{name} (an arm of {base})", _changed(document, builder.source(base)))
        )
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
    """One value of a method.

    Attributes:
        path: its place in the method's file, dotted.
        value: as in the file; of an option that the file leaves out, its default.
        source: where the value is from; empty where nothing says so.
        given: whether the file says the value.
    """

    path: str
    value: Any
    source: str
    given: bool


def settings(method: Any, registry: Mapping[str, Any]) -> list[Setting]:
    """The settings of a method: its options phase by phase, defaults included, then what else its file sets.

    ``method`` is one, or what a report keeps of one: its ``config`` and ``phases``.
    """
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

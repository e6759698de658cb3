"""Which setting came from where, for the dry run: what single tasks and methods change in the shared protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from regft_core.schema.methods import WORDS
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.files import method_file, task_file

if TYPE_CHECKING:
    from regft_core.schema.method import Method, Phase
    from regft_core.settings.project import Project


def settings_lines(project: Project, params_file: str = "params.yaml") -> list[str]:
    """One line per layer that changes something, weakest first; empty where nothing is changed.

    A value is shown with the file and line that it came from. Values of a method's own file are shown where they
    win over a task's.
    """
    document = project.documents[params_file]
    tasks = list(project.params.grid.tasks)
    found = []
    for task in tasks:
        file = project.documents.get(task_file(task))
        layers = [(file, ()), (document, ("task_settings", task))]
        values: dict[str, str] = {}
        for place, at in layers:
            if place is not None:
                for section in ("training", "model"):
                    values |= dict(_values(place, (*at, section), (section,)))
        if values:
            found.append(_line(f"every method on {task}", values))
            found += _kept(project, task, values)
    for name in project.methods:
        values = dict(_values(document, ("method_settings", name)))
        base = project.params.method_settings[name].base if values or name in project.params.method_settings else None
        if values or base is not None:
            found.append(_line(name if base is None else f"{name} (an arm of {base})", values))
    for task in tasks:
        for name in project.methods:
            values = dict(_values(document, ("task_settings", task, "methods", name)))
            if values:
                found.append(_line(f"{name} on {task}", values))
    return found


def _line(who: str, values: Mapping[str, str]) -> str:
    return f"  {who}: " + (", ".join(f"{key} {value}" for key, value in values.items()) or "as it is")


def place_in(project: Project, name: str, phase: Phase, message: str) -> str | None:
    """``file:line`` of the option that a message about a phase of a method starts with (``lora.targets: ...``)."""
    key = tuple(message.partition(":")[0].split("."))
    file = project.documents.get(method_file(name))
    if file is None or key[0] not in dict(phase.regularisers):
        return None
    return str(file.place((*_at(project.methods[name], phase), "regularisers", *key)))


def _at(method: Method, phase: Phase) -> KeyPath:
    return ("phases", phase.name) if method.config.phases is not None else ()


def _kept(project: Project, task: str, values: Mapping[str, str]) -> Iterator[str]:
    """Methods whose own files win over the task's values."""
    for name, method in project.methods.items():
        file = project.documents[method_file(name)]
        for phase in method.phases:
            own = dict(_values(file, (*_at(method, phase), "training"), ("training",)))
            if won := {key: value for key, value in own.items() if key in values}:
                where = f"{name}, phase {phase.name}" if len(method.phases) > 1 else name
                yield _line(f"  {where} keeps its own", won)


def _values(document: Document, at: KeyPath, shown: KeyPath = ()) -> Iterator[tuple[str, str]]:
    """(dotted key, ``value (file:line)``) of every leaf below ``at``, in the order of the file."""
    data = document.value(at)
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        if not shown and (key == "base" or key in WORDS):
            continue
        if isinstance(value, dict) and value:
            yield from _values(document, (*at, key), (*shown, key))
        elif value != {}:
            yield ".".join(map(str, (*shown, key))), f"{_plain(value)} ({document.place((*at, key))})"


def _plain(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def described(values: Mapping[str, Any]) -> str:
    """Dotted settings as a line: ``training.learning_rate 1e-05, regularisers.hype.scale 0.0001``."""
    return ", ".join(f"{key} {_plain(value)}" for key, value in values.items())

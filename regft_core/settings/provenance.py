"""Which setting came from where: of the dry run, and of a message about one option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regft_core.schema.methods import WORDS
from regft_core.settings.document import Document, dotted, leaves
from regft_core.settings.files import method_file

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

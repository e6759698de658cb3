"""Where the YAML files of a project are, and what is said of a task or a method that has none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regft_core.config.yaml.document import Document, KeyPath
from regft_core.errors import Problem
from regft_core.names import suggestion

TASKS = "pipelines/tasks"
METHODS = "pipelines/methods"
CONTAMINATION = "pipelines/contamination.yaml"
PUBLISHED = "published"
#: Folders of the YAML files that a project is read from, beside its params file and ``CONTAMINATION``.
FOLDERS = (TASKS, METHODS, PUBLISHED)
_WHAT = {TASKS: "task", METHODS: "method"}


def task_file(name: str) -> str:
    """The file of a task, relative to the project."""
    return f"{TASKS}/{name}.yaml"


def method_file(name: str) -> str:
    """The file of a method, relative to the project."""
    return f"{METHODS}/{name}.yaml"


def names_in(folder: Path) -> list[str]:
    """Names of the YAML files in ``folder``, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def missing(
    root: Path, folder: str, name: str, document: Document, at: KeyPath, more: Sequence[str] = (), without: str = ""
) -> Problem | None:
    """The problem of a name, at ``at`` of ``document``, that no file of ``folder`` has; None when one has it.

    Args:
        folder: ``TASKS`` or ``METHODS``.
        more: names that may be meant although they have no file.
        without: a name that cannot be meant although it has a file.
    """
    if (root / folder / f"{name}.yaml").is_file():
        return None
    what, present = _WHAT[folder], sorted({*names_in(root / folder), *more} - {without})
    message = f"unknown {what} '{name}': there is no {folder}/{name}.yaml"
    return document.problem(
        ("unknown-task" if folder == TASKS else "unknown-method"),
        at,
        message,
        suggestion(name, present, f"{what}s there"),
    )

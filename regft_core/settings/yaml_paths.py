"""Paths of a project's YAML files and of its run store; the error where a task or a method has no file.

A file is looked for in the project first, then among those that the package ships (``shipped``). A name in both is an
error unless the project's file begins with ``override: true``; a copy with the same content is none.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from regft_core import shipped
from regft_core.disk.paths import expand, what_is
from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema.params import Params
from regft_core.settings.document import Document, KeyPath, load_yaml

TASKS = "pipelines/tasks"
METHODS = "pipelines/methods"
PRESETS = "pipelines/presets"
CONTAMINATION = "pipelines/contamination.yaml"
PUBLISHED = "published"
#: All numbers of the report, and its leaderboard as text.
RESULTS = "reports/results.json"
LEADERBOARD = "reports/leaderboard.txt"
#: Folders of the YAML files that a project is read from, beside its params file and ``CONTAMINATION``.
FOLDERS = (TASKS, METHODS, PUBLISHED)
#: The key by which a project's file says that it takes the place of a shipped one; no part of what is read.
OVERRIDE = "override"
_WHAT = {TASKS: "task", METHODS: "method", PRESETS: "preset", PUBLISHED: "table"}


def no_project(root: Path, name: str = "params.yaml", what: str = "a project") -> Problem:
    """Return the problem of a folder that lacks the file that makes it a project."""
    hint = "make a new project with `regft init FOLDER`, or go to the folder of yours"
    return Problem("no-project", name, 0, "", f"is not in {root}, so this is not {what}", hint)


def task_file(name: str) -> str:
    return f"{TASKS}/{name}.yaml"


def method_file(name: str) -> str:
    return f"{METHODS}/{name}.yaml"


def names(root: Path, folder: str) -> list[str]:
    """Names of the YAML files of a folder, the project's own and those that the package ships, sorted."""
    return sorted({path.stem for base in (root, shipped.FOLDER) for path in (base / folder).glob("*.yaml")})


def find(root: Path, folder: str, name: str) -> Path | None:
    """The file of a name: the project's own, else the shipped one, else None."""
    places = (base / folder / f"{name}.yaml" for base in (root, shipped.FOLDER))
    return next((path for path in places if path.is_file()), None)


def ships(folder: str, name: str) -> bool:
    """Whether the package ships a file of this name."""
    return (shipped.FOLDER / folder / f"{name}.yaml").is_file()


def read(root: Path, folder: str, name: str) -> Document | None:
    """Read the file of a name, without ``override``; None when there is none. Raises ConfigError."""
    path = find(root, folder, name)
    if path is None:
        return None
    document, shipped_file = load_yaml(path, root), shipped.FOLDER / folder / f"{name}.yaml"
    twice = shipped_file.is_file() and path != shipped_file and path.read_bytes() != shipped_file.read_bytes()
    if twice and document.data.get(OVERRIDE) is not True:
        message = f"the {_WHAT.get(folder, 'file')} '{name}' is also shipped with regft, in {shipped_file}"
        hint = f"write '{OVERRIDE}: true' at the top of this file to use it in that one's place, or rename it"
        raise ConfigError([document.problem("name-taken", (), message, hint)])
    return without_override(document)


def without_override(document: Document) -> Document:
    """``document`` without the key that chooses between files of one name."""
    return replace(document, data={key: value for key, value in document.data.items() if key != OVERRIDE})


def missing(root: Path, folder: str, name: str, document: Document, at: KeyPath, *beside: str) -> Problem:
    """Return the problem of a name, at ``at`` of ``document``, that neither a file of ``folder`` nor ``beside`` has."""
    what = _WHAT[folder]
    message, hint = f"unknown {what} '{name}': there is no {folder}/{name}.yaml", f"{what}s there"
    return document.problem(f"unknown-{what}", at, message, suggestion(name, [*beside, *names(root, folder)], hint))


def store_path(root: Path, params: Params) -> Path:
    """The run store's directory, below ``project_root``. Raises ValueError for a home directory that is not found."""
    return expand(project_root(root), params.store.path)


def project_root(root: Path) -> Path:
    """The project itself where ``root`` is a copy of it below ``.dvc/tmp`` (``dvc exp run --temp``); else ``root``.

    DVC names the project that an experiment belongs to in ``DVC_ROOT``. A project that is no
    copy inside that one, for instance one that a stage of another project runs, is on its own.
    """
    project = Path(os.environ.get("DVC_ROOT") or root)
    copies, is_project = project / ".dvc" / "tmp", what_is(project / "params.yaml") == "a file"
    return project if is_project and root.resolve().is_relative_to(copies.resolve()) else root

"""Where the run store lies, and where it must not: it deletes and writes files by itself."""

from __future__ import annotations

import os
from pathlib import Path

from regft_core.errors import Problem
from regft_core.io.paths import expand, what_is
from regft_core.schema.execution import StoreConfig
from regft_core.schema.params import Params
from regft_core.settings.document import Document

#: Folders of a project that others write, and why the store may not lie in them.
TAKEN = {
    "data": "DVC would take every finished run for changed data",
    "regft_core": "DVC would take every finished run for changed code",
    "stages": "DVC would take every finished run for changed code",
    "pipelines": "it holds configurations only",
    "work": "DVC deletes the outputs of stages there",
    "reports": "DVC deletes the outputs of stages there",
    ".git": "it belongs to git",
    ".dvc": "it belongs to DVC, which cleans it up",
}


def store_path(root: Path, params: Params) -> Path:
    """The run store's directory.

    ``~`` is expanded. A relative path starts at the project; in a copy of the project that
    ``dvc exp run --temp`` made below ``.dvc/tmp``, at the project that was copied, so that
    experiments share its runs.

    Raises ValueError for a home directory that cannot be found (``check_store`` says where).
    """
    return _resolve(root, params.store)


def check_store(root: Path, store: StoreConfig, document: Document) -> list[Problem]:
    """Problems of the ``store`` section."""
    at = ("store", "path")
    elsewhere = "give a folder of its own, for instance .regft, or one outside the project"
    try:
        path = _resolve(root, store)
    except ValueError as error:
        return [document.problem("bad-path", at, str(error), elsewhere)]
    there = next(place for place in (path, *path.parents) if what_is(place) is not None)
    if (kind := what_is(there)) != "a directory":
        what = "is" if there == path else f"lies below {there}, which is"
        return [document.problem("not-a-directory", at, f"'{store.path}' {what} {kind}, not a directory", elsewhere)]
    home = project_root(root).resolve()
    for place in (path.resolve(), Path(os.path.normpath(path.absolute()))):
        if home == place:
            return [document.problem("store-around-project", at, f"'{store.path}' is the project itself", elsewhere)]
        if home.is_relative_to(place):
            return [
                document.problem(
                    "store-around-project", at, f"'{store.path}' ({place}) contains the project", elsewhere
                )
            ]
        for folder, reason in TAKEN.items():
            if place.is_relative_to(home / folder):
                return [
                    document.problem(
                        "store-in-folder-of-others", at, f"'{store.path}' lies in {folder}/: {reason}", elsewhere
                    )
                ]
    return []


def project_root(root: Path) -> Path:
    """The project itself where ``root`` is a copy of it below ``.dvc/tmp``; else ``root``.

    DVC names the project that an experiment belongs to in ``DVC_ROOT``. A project that is no
    copy inside that one, for instance one that a stage of another project runs, is on its own.
    """
    given = os.environ.get("DVC_ROOT")
    if not given:
        return root
    project = Path(given)
    copies = project / ".dvc" / "tmp"
    is_project = what_is(project / "params.yaml") == "a file"
    return project if is_project and root.resolve().is_relative_to(copies.resolve()) else root


def _resolve(root: Path, store: StoreConfig) -> Path:
    return expand(project_root(root), store.path)

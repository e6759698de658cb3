"""Where the run store lies, and where it must not: it deletes and writes files by itself."""

from __future__ import annotations

import os
from pathlib import Path

from regft_core.disk.paths import expand, what_is
from regft_core.errors import Problem
from regft_core.schema.params import Params, StoreConfig
from regft_core.settings.document import Document

#: Folders of a project that git or DVC own: they would take runs for changed data or code, or delete them.
TAKEN = ("data", "regft_core", "stages", "pipelines", "work", "reports", ".git", ".dvc")


def store_path(root: Path, params: Params) -> Path:
    """The run store's directory.

    ``~`` is expanded. A relative path starts at the project; in a copy of the project that
    ``dvc exp run --temp`` made below ``.dvc/tmp``, at the project that was copied, so that
    experiments share its runs.

    Raises ValueError for a home directory that cannot be found (``check_store`` says where).
    """
    return expand(project_root(root), params.store.path)


def check_store(root: Path, store: StoreConfig, document: Document) -> list[Problem]:
    """Problems of the ``store`` section."""

    def wrong(code: str, message: str) -> list[Problem]:
        hint = "give a folder of its own, for instance .regft, or one outside the project"
        return [document.problem(code, ("store", "path"), f"'{store.path}' {message}", hint)]

    try:
        path = expand(project_root(root), store.path)
    except ValueError as error:
        return wrong("bad-path", str(error))
    there = next(place for place in (path, *path.parents) if what_is(place) is not None)
    if (kind := what_is(there)) != "a directory":
        return wrong("not-a-directory", f"cannot be made: {there} is {kind}")
    home = project_root(root).resolve()
    for place in (path.resolve(), Path(os.path.normpath(path.absolute()))):
        if home.is_relative_to(place):
            return wrong("store-around-project", f"contains the project ({place})")
        for folder in TAKEN:
            if place.is_relative_to(home / folder):
                return wrong("store-in-folder-of-others", f"lies in {folder}/, which belongs to git or DVC")
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

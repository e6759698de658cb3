"""Folders in which every file is one thing that a YAML can name: kinds of task, metrics, optimisers, executors.

A project adds its own in folders beside ``params.yaml`` (``OWN``). Names are those of files, so asking for them imports
nothing; short ones are a table in their package's ``__init__.py``. A file whose name starts with ``_`` has no name.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion


class Catalogue:
    """The files of one ``package`` of regft, and of the project's own folder for them.

    ``what`` names one file; ``defines``: the function that it must define; ``table``: the package's are in ``SHIPPED``.
    """

    def __init__(self, package: str, what: str, defines: str = "", *, table: bool = False) -> None:
        self.package = package
        self.what = what
        self.defines = defines
        self.table = table
        #: The project's own folder, see ``use_project``.
        self.own: Path | None = None
        self._shipped = Path(__file__).parent.joinpath(*package.split(".")[1:])
        self._loaded: dict[Path, tuple[tuple[int, int], ModuleType]] = {}

    @property
    def folders(self) -> list[Path]:
        """The package's folder, and the project's own."""
        return [self._shipped] if self.own is None else [self._shipped, self.own]

    def entry(self, name: str) -> str:
        """Return the name of a file in fingerprints: its module; its path where it is none of regft's."""
        path = self.path(name)
        if path.parent != self._shipped:
            return str(path.resolve())
        return self.package if path.stem == "__init__" else f"{self.package}.{path.stem}"

    def is_shipped(self, name: str) -> bool:
        """Whether the file of ``name`` is the package's."""
        return self.path(name).parent == self._shipped

    def state(self) -> tuple[tuple[str, int, int], ...]:
        """Path, time and size of every file that is not the package's: what was made of them holds while it is so."""
        others = ((path, os.stat(path)) for name, path in self._files().items() if name not in self._shipped_files)
        return tuple((path, state.st_mtime_ns, state.st_size) for path, state in others)

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted; nothing is imported. Raises ConfigError: two folders have a file of one name."""
        return tuple(self._files())

    def path(self, name: str) -> Path:
        """Return the file of ``name``; raises as ``load``."""
        return Path(self._files()[name])

    def check(self, name: str, beside: tuple[str, ...] = ()) -> str:
        """Return ``name`` if it is known, or one of those ``beside``; imports nothing. Raises ValueError."""
        if name in beside:
            return name
        known = (*beside, *self.names())
        if name not in known:
            raise ValueError(f"unknown {self.what} '{name}'; {suggestion(name, known)}")
        path = self.path(name)
        wanted = rf"^(def {self.defines}\(|{self.defines}\s*[:=])" if path.parent != self._shipped else ""
        if self.defines and not re.search(wanted, path.read_text(encoding="utf-8"), re.MULTILINE):
            raise ValueError(f"{shown(path)} defines no function '{self.defines}', which a {self.what} needs")
        return name

    def find(self, name: str) -> Any:
        """Import the file of a ``name`` that a user gave; raises as ``check``."""
        return self.load(self.check(name))

    def load(self, name: str) -> Any:
        """Import the file of ``name``, or take it from the package's table. Raises KeyError, ConfigError."""
        path = self.path(name)
        try:
            if path.parent == self._shipped:
                module = importlib.import_module(self.entry(name))
                return module.SHIPPED[name] if path.stem == "__init__" else module
            state = path.stat().st_mtime_ns, path.stat().st_size
            # The file is hashed as it is now, so the code that runs must be the same.
            if path not in self._loaded or self._loaded[path][0] != state:
                self._loaded[path] = state, import_file(path, f"regft_extra_{self.what.replace(' ', '_')}_{name}")
                LOADED[str(path.resolve())] = state
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno or 0 for frame in frames if frame.filename == str(path)]
            reason = str(error)
            if isinstance(error, SyntaxError) and error.filename == str(path):
                reason = error.msg  # without the place, which the problem has
                lines.append(error.lineno or 0)
            message = f"cannot be imported: {type(error).__name__}: {reason}"
            hint = "repair the file, or move it out of the folder"
            raise ConfigError([Problem("cannot-import", shown(path), (lines or [0])[-1], "", message, hint)]) from error
        return self._loaded[path][1]

    @cached_property
    def _shipped_files(self) -> dict[str, str]:
        """The package's own, listed once in a process."""
        table = importlib.import_module(self.package).SHIPPED if self.table else ()
        return dict.fromkeys(table, str(self._shipped / "__init__.py")) | dict(_python_files(self._shipped))

    def _files(self) -> dict[str, str]:
        found = dict(self._shipped_files)
        for folder in self.folders[1:]:
            for name, path in _python_files(folder):
                if name in found:
                    what, hint = f"the {self.what} '{name}' is also defined in {found[name]}", "rename one of the files"
                    raise ConfigError([Problem("name-taken", path, 0, "", what, hint)])
                found[name] = path
        return dict(sorted(found.items()))


def _python_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and path of each file of a folder that has a name in YAML."""
    for file in os.listdir(folder):
        name, suffix = os.path.splitext(file)
        if suffix == ".py" and name.isidentifier() and not name.startswith("_"):
            yield name, os.path.join(folder, file)


#: Path of a file that is no module of regft -> time and size that it had when it was loaded (runs/code.py).
LOADED: dict[str, tuple[int, int]] = {}


def import_file(path: Path, name: str) -> ModuleType:
    """Import a file under a name of its own; whatever it raises comes through."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # pydantic looks names of annotations up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        raise
    return module


def shown(file: Path | str | None) -> str:
    """A file as messages show it: relative to the project or to the package's source where it is inside."""
    path = Path(file or "")
    homes = [Path(__file__).parents[1], *(one.own.parent for one in OWN.values() if one.own is not None)]
    return next((path.relative_to(home).as_posix() for home in homes if path.is_relative_to(home)), str(path))


KINDS = Catalogue("regft_core.kinds", "kind of task")
METRICS = Catalogue("regft_core.metrics", "metric", table=True)
OPTIMISERS = Catalogue("regft_core.training.optimisers", "optimiser", "build", table=True)
SCHEDULES = Catalogue("regft_core.training.schedules", "schedule", "factor", table=True)
SAMPLERS = Catalogue("regft_core.training.samplers", "sampler", "batches", table=True)
MERGES = Catalogue("regft_core.training.merges", "merge rule", "merge", table=True)
POOLINGS = Catalogue("regft_core.models.poolings", "pooling", "pool", table=True)
EVALUATIONS = Catalogue("regft_core.evaluate.analyses", "evaluation")
EXECUTORS = Catalogue("regft_core.grid.executors", "executor")
METHODS = Catalogue("regft_core.methods", "method")
TRACKERS = Catalogue("regft_core.tracking.trackers", "tracker")
FAMILIES = Catalogue("regft_core.models.families", "encoder family", table=True)
_ALL = [value for value in vars().copy().values() if isinstance(value, Catalogue)]
#: Folder beside ``params.yaml`` -> what its files are; the name is that of the package.
OWN = {"evaluations" if one is EVALUATIONS else one.package.rpartition(".")[2]: one for one in _ALL}


def use_project(root: Path) -> None:
    """Take the files of a project's own folders from here on, and those of no other project."""
    for name, catalogue in OWN.items():
        folder = Path(os.path.realpath(root)) / name
        catalogue.own = Path(os.path.realpath(folder)) if folder.is_dir() else None

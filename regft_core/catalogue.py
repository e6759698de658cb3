"""Folders in which every file is one thing that a YAML can name: kinds of task, metrics, optimisers, executors.

There is no list to keep up to date. The names are those of the files, so asking for them
imports nothing: the validator knows the optimisers without torch. A file whose name starts
with ``_`` is shared machinery and has no name here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion


class Catalogue:
    """The files of one package of regft, and of further folders while ``also`` is open.

    Args:
        package: dotted name below ``regft_core``.
        what: what one file is, for messages.
    """

    def __init__(self, package: str, what: str) -> None:
        self.package = package
        self.what = what
        self.folders = [Path(__file__).parent.joinpath(*package.split(".")[1:])]
        self._loaded: dict[Path, tuple[tuple[int, int], ModuleType]] = {}

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted; nothing is imported.

        Raises:
            ConfigError: two folders have a file of one name.
        """
        return tuple(self._files())

    def path(self, name: str) -> Path:
        """Return the file of ``name``; raises as ``load``."""
        return self._files()[name]

    def check(self, name: str) -> str:
        """Return ``name`` if it is known; nothing is imported.

        Raises:
            ValueError: there is no such file; the message names the nearest one.
            ConfigError: two folders have a file of one name.
        """
        known = self.names()
        if name not in known:
            raise ValueError(f"unknown {self.what} '{name}'; {suggestion(name, known)}")
        return name

    def find(self, name: str) -> ModuleType:
        """Import the file of a ``name`` that a user gave; raises as ``check``."""
        return self.load(self.check(name))

    def load(self, name: str) -> ModuleType:
        """Import the file of ``name``.

        Raises:
            KeyError: there is no such file; callers that take names from users check them first.
            ConfigError: two folders have a file of one name.
        """
        path = self._files()[name]
        if path.parent == self.folders[0]:
            return importlib.import_module(f"{self.package}.{name}")
        state = path.stat().st_mtime_ns, path.stat().st_size
        if path not in self._loaded or self._loaded[path][0] != state:  # whoever hashes the file means what it says now
            spec = importlib.util.spec_from_file_location(f"regft_extra_{self.what}_{name}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._loaded[path] = state, module
        return self._loaded[path][1]

    @contextmanager
    def also(self, folder: Path) -> Iterator[None]:
        """Take the files of another ``folder`` as well, for the duration of a ``with`` block."""
        self.folders.append(Path(folder))
        try:
            yield
        finally:
            self.folders.remove(Path(folder))

    def _files(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for folder in self.folders:
            for file in os.listdir(folder):
                name, suffix = os.path.splitext(file)
                if suffix != ".py" or name.startswith("_") or not name.isidentifier():
                    continue
                path = folder / file
                if name in found:
                    message = f"the {self.what} '{name}' is also defined in {found[name]}"
                    raise ConfigError(
                        [Problem("name-taken", str(path), 0, "", message, "give one of the files another name")]
                    )
                found[name] = path
        return dict(sorted(found.items()))


KINDS = Catalogue("regft_core.kinds", "kind of task")
METRICS = Catalogue("regft_core.metrics", "metric")
OPTIMISERS = Catalogue("regft_core.training.optimisers", "optimiser")
EVALUATIONS = Catalogue("regft_core.analyses", "evaluation")
EXECUTORS = Catalogue("regft_core.execution.executors", "executor")

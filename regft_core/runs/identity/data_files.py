"""Files beside a module that belong to its code: templates, tables, word lists, numbers.

A file belongs to the module whose name begins its own (``pats.json`` and ``pats_words/a.txt`` to ``pats.py``). One
that no module's name begins belongs to every module of its folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from regft_core.io.file_states import FileState, file_state, folder_state, settled

#: What lies beside modules and is not read by them.
_NO_DATA = (".py", ".pyc", ".pyi", ".md", "~")


@dataclass(frozen=True)
class DataFiles:
    """Data files of some modules.

    Attributes:
        names: path -> name, from the module's folder.
        folders: every folder that was looked into, as it was.
    """

    names: dict[str, str]
    folders: tuple[FileState, ...]

    def same(self) -> bool:
        """Whether a look would find the same files now."""
        return all(settled(state) and folder_state(state.path) == state for state in self.folders)


def data_files(modules: Iterable[str]) -> DataFiles:
    """Return the data files that belong to the modules in these files."""
    folders: dict[str, set[str]] = {}
    look = _Look()
    for path in modules:
        folder, own = os.path.split(os.path.splitext(path)[0])
        folders.setdefault(folder, set()).add(own)
        above, name = os.path.split(folder)
        if own == "__init__" and "__init__.py" in look.files(above):  # a package is a module of the one above, too
            folders.setdefault(above, set()).add(name)
    names = {path: name for folder, own in folders.items() for name, path in look.belonging(folder, own)}
    return DataFiles(names, tuple(look.states))


class _Look:
    """One look into some folders, each of which is listed once."""

    def __init__(self) -> None:
        self.states: list[FileState] = []
        self._listed: dict[str, tuple[list[str], list[str]]] = {}

    def files(self, folder: str) -> list[str]:
        """Names of the files in a folder."""
        return self._list(folder)[0]

    def _list(self, folder: str) -> tuple[list[str], list[str]]:
        if folder not in self._listed:
            state = folder_state(folder)
            files, inner = list[str](), list[str]()
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        files.append(entry.name)
                    elif entry.name != "__pycache__" and not entry.name.startswith("."):
                        inner.append(entry.name)
            self.states += [state] if state is not None else []
            self._listed[folder] = files, inner
        return self._listed[folder]

    def belonging(self, folder: str, own: set[str]) -> Iterator[tuple[str, str]]:
        """(name, path) of the data files of a folder that belong to one of the modules ``own``."""
        files, inner = self._list(folder)
        modules = [name.removesuffix(".py") for name in files if name.endswith(".py")]
        modules += [name for name in inner if self._has_modules(os.path.join(folder, name))]
        for name, path in self._below(folder):
            begins = [module for module in modules if name.startswith(module) and not name[len(module)].isalnum()]
            if not begins or max(begins, key=len) in own:
                yield name, path

    def _below(self, folder: str) -> Iterator[tuple[str, str]]:
        """Data files in a folder and in those inside it that hold no modules, which have their own."""
        files, inner = self._list(folder)
        for name in files:
            path = os.path.join(folder, name)
            if not name.endswith(_NO_DATA) and not name.startswith(".") and file_state(path) is not None:
                yield name, path
        for name in inner:
            below = os.path.join(folder, name)
            if not self._has_modules(below):
                yield from ((f"{name}/{one}", path) for one, path in self._below(below))

    def _has_modules(self, folder: str) -> bool:
        return any(name.endswith(".py") for name in self.files(folder))

"""Which modules some entry modules import, directly or not, and what each of them means.

Imports are found in syntax trees; nothing is imported, so this takes a fraction of a second
and no torch. Parsed files are kept for the life of the process.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from regft_core.errors import ConfigError, Problem
from regft_core.io import sha256_text
from regft_core.runs.distributions import is_standard, providers
from regft_core.runs.files import FileState, Missing, content_sha256, file_state, folder_state, settled
from regft_core.runs.imports import imported_names
from regft_core.runs.syntax import Meaning, meaning

#: Files beside the modules that belong to the code (report templates, published numbers).
RESOURCES = frozenset({".html", ".j2", ".jinja", ".css", ".js", ".yaml", ".yml", ".json", ".csv", ".tsv", ".txt"})


@dataclass(frozen=True)
class Parsed:
    """A module's meaning and the dotted names that it imports."""

    meaning: Meaning
    names: frozenset[str]


@dataclass(frozen=True)
class Reach:
    """What entry modules reach.

    Attributes:
        modules: module -> hash; also ``module:name`` for what one module takes from another
            although it does not count there, and data files by path.
        files: module -> the file that was read for it.
        meanings: module -> what that file means.
        external: top-level packages from elsewhere that the modules import.
        notes: what others have worked out from all this, for whoever is given the same reach again.
    """

    modules: dict[str, str] = field(default_factory=dict)
    files: dict[str, FileState] = field(default_factory=dict)
    meanings: dict[str, Meaning] = field(default_factory=dict)
    external: set[str] = field(default_factory=set)
    notes: dict[Any, Any] = field(default_factory=dict, compare=False)


class _Looked(NamedTuple):
    """Every file that was looked for to find a reach: those that were there, and those that were not."""

    found: tuple[FileState, ...]
    missing: Missing

    def same(self) -> bool:
        """Whether every look would find the same now."""
        return all(file_state(state.path) == state for state in self.found) and self.missing.still()


_parsed: dict[tuple[str, str], tuple[FileState, Parsed]] = {}
#: What was asked -> every file that was looked for then (also in vain), and what was reached.
_reaches: dict[tuple[Any, ...], tuple[_Looked, Reach]] = {}
#: Folder -> its data files and the folders inside it, as they were when its list of names was as it is.
_listings: dict[str, tuple[FileState, list[str], list[str]]] = {}


@cache
def _candidates(root: str, module: str) -> tuple[str, str]:
    """Where a module can lie: a package's file goes first, as in an import. Every run asks hundreds of times."""
    base = os.path.join(root, *module.split("."))
    return os.path.join(base, "__init__.py"), base + ".py"


def under(module: str, names: Collection[str]) -> bool:
    """Whether ``module`` is one of ``names`` or below one of them."""
    return any(module == name or module.startswith(name + ".") for name in names)


def prefixes(module: str) -> list[str]:
    """``a``, ``a.b`` and ``a.b.c`` for ``a.b.c``: a package's ``__init__`` runs before its modules."""
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


class CodeGraph:
    """The modules under ``root`` at one moment.

    Args:
        packages: the project's top-level packages. Another one under ``root`` counts too if no
            installed distribution has its name.
        lookups: modules that find entries by scanning files -> the package with those files.
            What such a module imports from there does not count: the entries in use are given.
    """

    def __init__(self, root: Path, packages: Sequence[str], lookups: Mapping[str, str]) -> None:
        self.root = os.path.abspath(root)
        self.packages = frozenset(packages)
        self.lookups = lookups
        self._states: dict[str, FileState | None] = {}
        self._own: dict[str, bool] = {}

    def file(self, module: str) -> FileState | None:
        """Return the file of ``module``, or None if there is none."""
        if module not in self._states:
            package, plain = _candidates(self.root, module)
            self._states[module] = file_state(package) or file_state(plain)
        return self._states[module]

    def _is_own(self, top: str) -> bool:
        if top not in self._own:
            own = top in self.packages
            self._own[top] = own or (not is_standard(top) and self.file(top) is not None and not providers(top))
        return self._own[top]

    def _read(self, module: str, state: FileState) -> Parsed:
        known = _parsed.get((module, state.path))
        if known is not None and known[0] == state:
            return known[1]
        source = Path(state.path).read_bytes()
        try:
            tree = ast.parse(source, filename=state.path)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 0
            message = getattr(error, "msg", None) or str(error)
            where = os.path.relpath(state.path, self.root)
            raise ConfigError([Problem("bad-python", where, line, "", f"is not valid Python: {message}")]) from error
        names = imported_names(tree, module, os.path.basename(state.path) == "__init__.py")
        parsed = Parsed(meaning(tree), frozenset(names))
        if file_state(state.path) == state and settled(state):
            _parsed[(module, state.path)] = (state, parsed)
        return parsed

    def reach(self, entries: Sequence[str], exempt: Collection[str]) -> Reach:
        """Follow the imports of ``entries``, also those inside functions, and every package's ``__init__``.

        Modules in (or below) ``exempt`` are left out, unless they are entries, and so is what
        only they import. Nothing is read again while every file that was looked for is as it was;
        callers must not change what they get.

        Raises:
            ConfigError: an entry does not exist, or a file is not valid Python.
        """
        lookups = tuple(sorted(self.lookups.items()))
        asked = (self.root, self.packages, lookups, tuple(entries), frozenset(exempt))
        known = _reaches.get(asked)
        if known is not None and known[0].same():
            return known[1]
        found = self._follow(entries, exempt)
        if all(settled(state) for state in self._states.values()):
            _reaches[asked] = self._looked(), found
        return found

    def _looked(self) -> _Looked:
        missing = []
        for module, state in self._states.items():
            package, plain = _candidates(self.root, module)
            if state is None or state.path == plain:
                missing.append(package)
            if state is None:
                missing.append(plain)
        return _Looked(tuple(state for state in self._states.values() if state is not None), Missing(missing))

    def _follow(self, entries: Sequence[str], exempt: Collection[str]) -> Reach:
        for entry in entries:
            if self.file(entry) is None:
                expected = entry.replace(".", "/") + ".py"
                raise ConfigError(
                    [
                        Problem(
                            "module-missing",
                            expected,
                            0,
                            "",
                            f"module {entry} does not exist, but results depend on it",
                        )
                    ]
                )
        found = Reach()
        parsed: dict[str, Parsed] = {}
        queue = [prefix for entry in entries for prefix in prefixes(entry)]
        while queue:
            module = queue.pop()
            if module in parsed or (under(module, exempt) and module not in entries):
                continue
            state = self.file(module)
            if state is None:
                continue  # a name that is not a module: `from a import function`
            parsed[module] = self._read(module, state)
            found.files[module] = state
            for name in parsed[module].names:
                top = name.split(".")[0]
                if not self._is_own(top):
                    found.external.add(top)
                elif not (module in self.lookups and under(name, (self.lookups[module],))):
                    queue.extend(prefixes(name))
        found.meanings.update((module, one.meaning) for module, one in parsed.items())
        found.modules.update((module, one.sha256) for module, one in found.meanings.items())
        found.modules.update(_taken(parsed))
        found.modules.update(_asked(parsed))
        return found

    def resources(self, files: Mapping[str, FileState]) -> dict[str, str]:
        """Return {path: hash} of the data files of the packages that the modules with these files are in."""
        directories = {os.path.dirname(state.path) for state in files.values()}
        return {
            Path(file).relative_to(self.root).as_posix(): content_sha256(file)
            for directory in directories
            for file in _data_files(directory)
        }


def _data_files(directory: str) -> Iterator[str]:
    """The data files of one package; those of a package inside it belong to that one."""
    files, inner = _listing(directory)
    for file in files:
        if file_state(file) is not None:
            yield file
    for below in inner:
        if not any(name.endswith(".py") for name in os.listdir(below)):
            yield from _data_files(below)


def _listing(directory: str) -> tuple[list[str], list[str]]:
    """What is named like data files in a folder, and the folders inside it."""
    state = folder_state(directory)
    known = _listings.get(directory)
    if known is not None and known[0] == state:
        return known[1], known[2]
    files, inner = [], []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
            elif os.path.splitext(entry.name)[1] in RESOURCES:
                files.append(entry.path)
    if state is not None and settled(state):
        _listings[directory] = state, files, inner
    return files, inner


def _taken(parsed: Mapping[str, Parsed]) -> Iterator[tuple[str, str]]:
    """Imports that do not count for their module (see ``Meaning.hidden``) but that another takes from it."""
    for one in parsed.values():
        for name in one.names:
            module, _, local = name.rpartition(".")
            if module in parsed and local in parsed[module].meaning.hidden:
                yield f"{module}:{local}", sha256_text(parsed[module].meaning.hidden[local])


def _asked(parsed: Mapping[str, Parsed]) -> dict[str, str]:
    """Declarations of entries (see ``Meaning.declared``) that some module asks for after all."""
    asks = {name for one in parsed.values() for name in one.meaning.asks}
    while True:
        found = {
            (module, name): declared
            for module, one in parsed.items()
            for name, declared in one.meaning.declared.items()
            if name in asks
        }
        more = {name for declared in found.values() for name in declared.asks} - asks
        if not more:
            return {f"{module}:{name}": declared.sha256 for (module, name), declared in found.items()}
        asks |= more

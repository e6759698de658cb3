"""The project's modules at one moment, and what some of them reach.

Nothing is imported, so this takes a fraction of a second and no torch. Parsed files are kept while the process lives.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from regft_core.errors import ConfigError, Problem
from regft_core.io.file_states import FileState, Missing, content_sha256, file_state, settled
from regft_core.runs.identity.data_files import DataFiles, data_files
from regft_core.runs.identity.distributions import is_standard, providers
from regft_core.runs.identity.kept_meanings import keep, recall
from regft_core.runs.identity.reach import Reach, Walk
from regft_core.runs.identity.syntax import Meaning, meaning


class _Looked(NamedTuple):
    """Every file that was looked for to find a reach: those that were there, and those that were not."""

    found: tuple[FileState, ...]
    missing: Missing

    def same(self) -> bool:
        """Whether every look would find the same now."""
        return all(file_state(state.path) == state for state in self.found) and self.missing.still()


_parsed: dict[tuple[str, str], tuple[FileState, Meaning]] = {}
#: What was asked -> every file that was looked for then (also in vain), and what was reached.
_reaches: dict[tuple[Any, ...], tuple[_Looked, Reach]] = {}


@cache
def _candidates(root: str, module: str) -> tuple[str, str]:
    """Where a module can lie: a package's file goes first, as in an import. Every run asks hundreds of times."""
    base = os.path.join(root, *module.split("."))
    return os.path.join(base, "__init__.py"), base + ".py"


class CodeGraph:
    """The modules under ``root`` at one moment.

    Args:
        packages: the project's top-level packages. Another one under ``root`` counts too if no
            installed distribution has its name.
    """

    def __init__(self, root: Path, packages: Sequence[str]) -> None:
        self.root = os.path.abspath(root)
        self.packages = frozenset(packages)
        self._states: dict[str, FileState | None] = {}
        self._own: dict[str, bool] = {}
        self._read: dict[str, Meaning] = {}

    def file(self, module: str) -> FileState | None:
        """Return the file of ``module`` (which may be the path of a file itself), or None if there is none."""
        if module not in self._states:
            package, plain = (module, module) if os.path.isabs(module) else _candidates(self.root, module)
            self._states[module] = file_state(package) or file_state(plain)
        return self._states[module]

    def is_own(self, top: str) -> bool:
        """Whether a top-level package is the project's."""
        if top not in self._own:
            own = top in self.packages
            self._own[top] = own or (not is_standard(top) and self.file(top) is not None and not providers(top))
        return self._own[top]

    def read(self, module: str, state: FileState) -> Meaning:
        """What the file of ``module`` means. Raises ConfigError for one that is not valid Python."""
        if module not in self._read:
            self._read[module] = self._parse(module, state)
        return self._read[module]

    def _parse(self, module: str, state: FileState) -> Meaning:
        known = _parsed.get((module, state.path))
        if known is not None and known[0] == state:
            return known[1]
        source, is_package = Path(state.path).read_bytes(), os.path.basename(state.path) == "__init__.py"
        found = recall(module, source, is_package)
        if found is None:
            found = meaning(self._tree(source, state), module, is_package)
            keep(module, source, is_package, found)
        if file_state(state.path) == state and settled(state):
            _parsed[(module, state.path)] = (state, found)
        return found

    def _tree(self, source: bytes, state: FileState) -> ast.Module:
        try:
            return ast.parse(source, filename=state.path)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 0
            message = getattr(error, "msg", None) or str(error)
            where = os.path.relpath(state.path, self.root)
            raise ConfigError(
                [Problem("bad-python", where, line, "", f"is not valid Python: {message}", "correct that line")]
            ) from error

    def reach(self, entries: Sequence[str], exempt: Collection[str]) -> Reach:
        """Follow the names in ``entries`` to their definitions, and from there on.

        Modules in (or below) ``exempt`` are left out, unless they are entries, and so is what only
        they reach. Of an entry everything counts; of another module what is reached, and what acts when it
        is imported. Nothing is read again while every file that was looked for is as it was;
        callers must not change what they get.

        Raises:
            ConfigError: an entry does not exist, or a file is not valid Python.
        """
        asked = (self.root, self.packages, tuple(entries), frozenset(exempt))
        known = _reaches.get(asked)
        if known is not None and known[0].same():
            return known[1]
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
                            f"module {entry} does not exist, but results need it",
                            "restore the file",
                        )
                    ]
                )
        found = Walk(self, frozenset(entries), exempt).take()
        if all(settled(state) for state in self._states.values()):
            _reaches[asked] = self._looked(), found
        return found

    def _looked(self) -> _Looked:
        missing = []
        for module, state in self._states.items():
            package, plain = (module, module) if os.path.isabs(module) else _candidates(self.root, module)
            if state is None or state.path != package:
                missing.append(package)
            if state is None:
                missing.append(plain)
        return _Looked(tuple(state for state in self._states.values() if state is not None), Missing(missing))

    @staticmethod
    def resources(reach: Reach) -> dict[str, tuple[str, str]]:
        """Return {path: (name, hash)} of the data files beside the modules of which something is reached."""
        found: DataFiles | None = reach.notes.get("data files")
        if found is None or not found.same():
            found = reach.notes["data files"] = data_files(reach.files[module].path for module in reach.modules)
        return {path: (name, content_sha256(path)) for path, name in found.names.items()}

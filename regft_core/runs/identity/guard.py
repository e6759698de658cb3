"""That the code which is fingerprinted is the code which runs.

The fingerprint is taken from the files; Python runs what it loaded, perhaps earlier, perhaps
from byte code, and loads the rest when a function first imports it. ``LoadedCode`` closes
these gaps: made before a run, in the process that computes it, and asked again before the
result is stored.
"""

from __future__ import annotations

import importlib
import importlib.util
import marshal
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import regft_core
from regft_core.catalogue import LOADED
from regft_core.errors import CodeChanged, ConfigError
from regft_core.io.file_states import FileState, file_state
from regft_core.runs.identity.code_graph import Reach
from regft_core.runs.identity.fingerprint import PACKAGES, Scope, describe, graph_of, package_root
from regft_core.runs.identity.taken_in import CLOCK_NS, other_files, other_packages

#: Flags in the head of a .pyc (PEP 552): it names a hash of its source instead of size and time.
_HASH_BASED, _CHECK_SOURCE = 0b01, 0b10
_AGAIN = "\n    -> nothing was stored; run `dvc repro` again"

#: Of modules that this process has loaded: the file's path and what the file meant.
_loaded: dict[str, tuple[str, str]] = {}
#: Pairs of source and byte code that were compared.
_compared: set[tuple[FileState, FileState]] = set()
#: ``id`` of a reach -> the reach, and its modules as they were loaded and found to be what its files say.
_verified: dict[int, tuple[Reach, dict[str, ModuleType]]] = {}


class LoadedCode:
    """The code of one run, loaded now and as a whole, with its fingerprint.

    Args:
        scope: whose code; ``training_scope(own)`` or ``stage_scope(name, own)``.
        root: directory that holds the packages; that of this installation by default.
        packages: the project's own top-level packages.

    Attributes:
        code: the fingerprint (``fingerprint.code_of``), for the run's key.

    Raises:
        CodeChanged: what is (or was) loaded is not what the files say.
        ConfigError: an entry does not exist, or a file is not valid Python.
    """

    def __init__(self, scope: Scope, root: Path | None = None, packages: Sequence[str] = PACKAGES) -> None:
        self._scope, self._root, self._packages = scope, root, packages
        self._folder = package_root() if root is None else root
        # A file that is written in between is not the one that was loaded, even if it means the same.
        self.code, reach = self._take()
        self._data_files = self._look()
        self._refuse_what_came_later()
        if _is_verified(reach):
            return
        now = time.time_ns()
        early = {module for module in reach.files if module in sys.modules}
        for module in sorted(reach.files):
            if not os.path.isabs(module):  # a file that is no module is loaded by whoever uses it
                _load(module)
        after, again = self._take()
        written = sorted(m for m in reach.files.keys() | again.files.keys() if reach.files.get(m) != again.files.get(m))
        if written or after != self.code:
            raise CodeChanged("code-edited", self._message("was edited while it was being loaded", after, written))
        for module, state in reach.files.items():
            if LOADED.get(module, (state.mtime_ns, state.size)) != (state.mtime_ns, state.size):
                raise CodeChanged("code-edited", f"{module} was edited after this process had loaded it{_AGAIN}")
            if module in sys.modules:  # else it needs a package that is not installed, see _load
                _verify_origin(module, state)
                if module in early:
                    _verify_age(module, state, reach, now)
                _compare_byte_code(module, state)
                _loaded[module] = (state.path, reach.meanings[module].sha256)
        if again is reach and reach.files.keys() <= sys.modules.keys():
            _verified[id(reach)] = reach, {module: sys.modules[module] for module in reach.files}

    @property
    def sha256(self) -> str:
        """The fingerprint as one hash."""
        return str(self.code["sha256"])

    def check(self) -> None:
        """Raise ``CodeChanged`` unless the files still mean what was loaded; call it before storing a result."""
        try:
            code, _ = self._take()
        except ConfigError as error:
            raise CodeChanged(
                "code-edited", f"the code of this run changed while it was running:\n{error}{_AGAIN}"
            ) from error
        if code != self.code:
            raise CodeChanged("code-edited", self._message("changed while it was running", code))
        now = self._look()
        # Put back as it was, it may have been read in between; a module is not read again.
        if written := [name for name, state in self._data_files.items() if now.get(name) != state]:
            raise CodeChanged("code-edited", self._message("was written while it was running", code, written))

    def _look(self) -> dict[str, FileState | None]:
        """The data files that count, as they are; their names, unlike those of modules, are paths."""
        names = [name for name in self.code["modules"] if "/" in name and not name.endswith(".py")]
        return {name: file_state(str(self._folder / name)) for name in names}

    def _refuse_what_came_later(self) -> None:
        """Raise CodeChanged for packages and data files of which this process may have taken in others."""
        modules = self.code["modules"]
        files = {str(self._folder / name): (state, modules[name]) for name, state in self._data_files.items()}
        later = other_packages(self.code["packages"]) + other_files(files)
        if later:
            raise CodeChanged(
                "code-edited",
                f"{', '.join(later)} changed after this process had begun, so it may compute with what was there "
                f"before{_AGAIN}",
            )

    def _take(self) -> tuple[dict[str, Any], Reach]:
        graph = graph_of(self._root, self._packages)
        reach = graph.reach(self._scope.entries, self._scope.exempt)
        return describe(graph, reach), reach

    def _message(self, what: str, code: dict[str, Any], written: Sequence[str] = ()) -> str:
        changed = set(written)
        for part in ("modules", "packages"):
            old, new = self.code[part], code[part]
            changed |= {name for name in old.keys() | new.keys() if old.get(name, "") != new.get(name, "")}
        return f"the code of this run {what}: {', '.join(sorted(changed))}{_AGAIN}"


def _is_verified(reach: Reach) -> bool:
    """Whether all of this was loaded and compared before, in this process.

    The graph gives the same reach again only while no file of it was written and none was added that would count.
    """
    known = _verified.get(id(reach))
    return known is not None and all(sys.modules.get(module) is loaded for module, loaded in known[1].items())


def _verify_origin(module: str, state: FileState) -> None:
    """Raise ``CodeChanged`` if ``module`` was loaded from another file than ``state``."""
    source = getattr(sys.modules[module], "__file__", None)
    if source is None or os.path.realpath(source) != os.path.realpath(state.path):
        raise CodeChanged(
            "code-mixed",
            f"module {module} was loaded from {source}, but the code of this run is {state.path}: two copies of "
            "the project are mixed, or its folder was moved"
            "\n    -> nothing was stored; start in one folder, without the other on PYTHONPATH, and run again",
        )


def _verify_age(module: str, state: FileState, reach: Reach, now: int) -> None:
    """Raise ``CodeChanged`` if the file may mean something else now than when ``module`` was loaded."""
    if module not in _loaded:
        # A time in the future comes from another machine's clock and says nothing.
        edited = regft_core.LOADED_AT_NS - CLOCK_NS <= max(state.ctime_ns, state.mtime_ns) <= now
    else:
        edited = _loaded[module] != (state.path, reach.meanings[module].sha256)
    if edited:
        raise CodeChanged("code-edited", f"{state.path} was edited after this process had loaded it{_AGAIN}")


def _load(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        # It needs an optional package. Whoever calls it meets the same error; that the package
        # is not there is part of the fingerprint.
        if error.name is None or error.name.split(".")[0] in (*PACKAGES, module.split(".")[0]):
            raise


def _compare_byte_code(module: str, state: FileState) -> None:
    """Raise ``CodeChanged`` if Python took byte code of another source for that of this file.

    It goes by size and time in whole seconds, so an edit of the same length within a second
    runs the code before the edit, in every process until the .pyc is gone.
    """
    try:
        cached = file_state(importlib.util.cache_from_source(state.path))
    except NotImplementedError:  # this Python keeps no byte code
        return
    if cached is None or (state, cached) in _compared:
        return
    content = Path(cached.path).read_bytes()
    if not _would_be_used(content, state):
        return
    source = Path(state.path).read_bytes()
    if _byte_code(content) != _compiled(source, state.path):
        with suppress(OSError):  # a read-only folder: the message names the file
            Path(cached.path).unlink()
        raise CodeChanged(
            "outdated-byte-code",
            f"{state.path}: Python loaded outdated byte code of module {module}, left by an edit within one second; "
            f"{cached.path} {'cannot be removed, do so' if file_state(cached.path) else 'is removed now'}{_AGAIN}",
        )
    _compared.add((state, cached))


def _would_be_used(content: bytes, source: FileState) -> bool:
    """Whether Python takes a .pyc with this content for ``source``, as it does on import."""
    if content[:4] != importlib.util.MAGIC_NUMBER or len(content) < 16:
        return False
    flags, seconds, size = (int.from_bytes(content[i : i + 4], "little") for i in (4, 8, 12))
    if flags & _HASH_BASED:
        known = content[8:16] == importlib.util.source_hash(Path(source.path).read_bytes())
        return known or not flags & _CHECK_SOURCE
    return seconds == source.mtime_ns // 10**9 & 0xFFFFFFFF and size == source.size & 0xFFFFFFFF


def _byte_code(content: bytes) -> CodeType | None:
    try:
        code = marshal.loads(content[16:])
    except (EOFError, ValueError, TypeError):
        return None
    return code if isinstance(code, CodeType) else None


def _compiled(source: bytes, path: str) -> CodeType:
    compiled: CodeType = compile(source, path, "exec", dont_inherit=True, optimize=sys.flags.optimize)
    return compiled

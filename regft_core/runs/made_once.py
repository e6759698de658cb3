"""A result is made once: by the code that this process has loaded, under a lock, for the key that it was asked for.

A result is kept only under the code that computed it, whether a run or rows. What this process
has loaded, installed packages and data files included, is compared with the files before a result is computed, and the
files once more before it is written.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import regft_core
from regft_core.catalogue import LOADED
from regft_core.data.memory import vector_memory
from regft_core.disk.canonical import sha256_json
from regft_core.disk.paths import FileState
from regft_core.errors import CodeChanged, ConfigError, RunFailed
from regft_core.runs.code import code_of
from regft_core.runs.environment import set_up
from regft_core.runs.hashed_code import Scope
from regft_core.runs.run_folder import OpenRun, StoredRun

if TYPE_CHECKING:
    from regft_core.runs.context import Context

#: Hash of a file, and version of a package, as this process met them first: what it computes with.
_met: dict[str, str | None] = {}
#: The clock that stamps files may be this much behind the one that programs read.
_CLOCK_NS = 10_000_000
_AGAIN = "\n    -> nothing was stored; run `dvc repro` again"


class LoadedCode:
    """The code of a result, loaded now and as a whole; made before the result is computed.

    Attributes:
        code: for the key.

    Raises:
        CodeChanged: what this process has loaded is not what the files say.
        ConfigError: as ``code_of``.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope, self.code = scope, code_of(scope)
        later = [name for name, state in self.code.states.items() if self._came_later(name, state)]
        later += [name for name, version in self.code.packages.items() if _replaced(name, version)]
        if later:
            raise CodeChanged("code-edited", f"{', '.join(later)} changed after this process had begun{_AGAIN}")
        for module in self.code.files:
            if "/" not in module:
                with suppress(ImportError):  # it needs an optional package; whoever calls it meets the same error
                    importlib.import_module(module)
        self.check()

    @property
    def sha256(self) -> str:
        """The hash of everything."""
        return self.code.sha256

    def _came_later(self, name: str, state: FileState) -> bool:
        """Whether this process may have loaded another content of a file than it has now."""
        sha256 = self.code.files[name]
        if name in LOADED:  # of a plug-in its loader says what it loaded
            return LOADED[name] != (state.mtime_ns, state.size)
        if name not in _met:
            loaded = name in sys.modules or "/" in name
            if loaded and _since_the_start(max(state.mtime_ns, state.ctime_ns)):
                return True
            _met[name] = sha256
        return _met[name] != sha256

    def check(self) -> None:
        """Raise CodeChanged unless the files still mean what was loaded; call it before a result is stored."""
        try:
            now = code_of(self._scope)
        except ConfigError as error:
            raise CodeChanged("code-edited", f"the code of this run changed:\n{error}{_AGAIN}") from error
        before: dict[str, Any] = {**self.code.files, **self.code.packages}
        after: dict[str, Any] = {**now.files, **now.packages}
        changed = {name for name in before.keys() | after.keys() if before.get(name, "") != after.get(name, "")}
        # Put back as it was, a data file may have been read in between; a module is not read again.
        changed |= {name for name, state in self.code.states.items() if "/" in name and now.states.get(name) != state}
        if changed:
            what = ", ".join(sorted(changed))
            raise CodeChanged("code-edited", f"the code of this run changed while it was running: {what}{_AGAIN}")


def _since_the_start(changed_ns: int) -> bool:
    """Whether something was written after this process began; a time in the future is that of another clock."""
    return regft_core.LOADED_AT_NS - _CLOCK_NS <= changed_ns <= time.time_ns()


def _replaced(distribution: str, version: str | None) -> bool:
    """Whether a package was installed, replaced or removed after this process began."""
    if distribution not in _met:
        with suppress(importlib.metadata.PackageNotFoundError, OSError):
            # The folder with its metadata, which is made anew with every version.
            status = os.stat(getattr(importlib.metadata.distribution(distribution), "_path", ""))
            if _since_the_start(max(status.st_ctime_ns, status.st_mtime_ns)):
                return True
        _met[distribution] = version
    return _met[distribution] != version


def made_once(
    context: Context,
    identity: Mapping[str, Any],
    scope: Scope,
    what: str,
    make: Callable[[OpenRun, dict[str, Any]], StoredRun],
    *,
    serves: Callable[[StoredRun], bool] = lambda _: True,
) -> StoredRun:
    """Return the run with this identity from the store; else ``make`` makes and commits it.

    Args:
        scope: the code that makes it; ``what`` names the run in messages.
        make: hears the environment as torch has it now.
        serves: whether a finished run has what is asked of it.

    Raises:
        CodeChanged, InputChanged: code or encoder are edited meanwhile.
    """
    key = sha256_json(identity)
    stored = context.store.get(key)
    if stored is not None and serves(stored):
        return stored
    code = LoadedCode(scope)
    if identity["code"] != code.sha256:
        raise CodeChanged("code-edited", f"the code of {what} was edited a moment ago; run `dvc repro` again")
    here = set_up(context.device, context.params.execution)
    try:
        with context.store.open(key, identity, guard=_unchanged(context, code), environment=here) as working:
            finished = working.finished
            return finished if finished is not None and serves(finished) else make(working, here)
    except BaseException:
        vector_memory().clear()  # they may be those of an encoder that was replaced meanwhile
        raise


def scored_once(
    context: Context,
    identity: Mapping[str, Any],
    scope: Scope,
    what: str,
    compute: Callable[[Mapping[str, Any]], tuple[dict[str, Any], dict[str, str | bytes]]],
) -> StoredRun:
    """Return what reads a finished run from the store; else ``compute`` gives its result and files, or fails.

    Raises as ``made_once``.
    """

    def make(working: OpenRun, here: dict[str, Any]) -> StoredRun:
        try:
            result, files = compute(here)
        except RunFailed as error:
            result, files = {"status": "failed", "error": str(error)}, {}
        return working.commit(result, {}, files)

    return made_once(context, identity, scope, what, make)


def _unchanged(context: Context, code: LoadedCode) -> Callable[[], None]:
    """Return what is asked before a result is stored: whether code and encoders are still those of its key.

    Weights may be read from the file whenever they are first used. Rows are kept as they were read, and hashed so.
    """
    before = [(source, source.check()) for source in context.sources]

    def check() -> None:
        code.check()
        for source, states in before:
            source.check(states)

    return check

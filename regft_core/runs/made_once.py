"""A result is made once: by the code that this process has loaded, under a lock, for the key that it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from regft_core.disk.canonical import sha256_json
from regft_core.errors import CodeChanged
from regft_core.runs.environment import set_up
from regft_core.runs.hashed_code import Scope
from regft_core.runs.loaded import LoadedCode
from regft_core.runs.run_folder import OpenRun, StoredRun
from regft_core.schema.method import FINETUNE

if TYPE_CHECKING:
    from regft_core.runs.context import Context


def made_once(
    context: Context,
    identity: Mapping[str, Any],
    scope: Scope,
    what: str,
    make: Callable[[OpenRun, dict[str, Any]], StoredRun],
    *,
    current: str | None = FINETUNE,
    serves: Callable[[StoredRun], bool] = lambda _: True,
) -> StoredRun:
    """Return the run with this identity from the store; else ``make`` makes and commits it.

    Args:
        scope: the code that makes it; ``what`` names the run in messages.
        make: hears the environment as torch has it now.
        current: phase whose key an earlier stage may have written down, which must be that of what is here.
        serves: whether a finished run has what is asked of it.

    Raises:
        CodeChanged, InputChanged: code or encoder are edited meanwhile.
        PlanOutdated: an earlier stage has produced ``current`` from something else than what is here.
    """
    key = sha256_json(identity)
    stored = context.store.get(key)
    if stored is not None and serves(stored):
        return stored
    code = LoadedCode(scope)
    if identity["code"] != code.sha256:
        raise CodeChanged("code-edited", f"the code of {what} was edited a moment ago; run `dvc repro` again")
    if current is not None:
        context.keys.require_current(current)
    here = set_up(context.device, context.params.execution)
    with context.store.open(key, identity, guard=_unchanged(context, code), environment=here) as working:
        finished = working.finished
        return finished if finished is not None and serves(finished) else make(working, here)


def _unchanged(context: Context, code: LoadedCode) -> Callable[[], None]:
    """Return what is asked before a result is stored: whether code and encoder are still those of its key.

    Weights may be read from the file whenever they are first used. Rows are kept as they were read, and hashed so.
    """
    before = context.source.check()

    def check() -> None:
        for each in [code, *(made_by for made_by, _ in context.caches)]:
            each.check()
        context.source.check(before)
        for _, cache in context.caches:
            cache.write()

    return check

"""A result is made once: by the code that this process has loaded, under a lock, for the key that it was asked for.

Its key is computed before it is made, and once more before it is written, from all inputs as they are then. Where the
keys differ, an input was edited meanwhile and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from regft_core.data.encode import token_memory, vector_memory
from regft_core.disk.canonical import sha256_json
from regft_core.errors import InputChanged, RunFailed
from regft_core.names import listing
from regft_core.runs.code import Scope, code_of, load
from regft_core.runs.context import Context, kept_tokenizer
from regft_core.runs.environment import set_up
from regft_core.runs.run_folder import OpenRun, StoredRun


def made_once(
    context: Context,
    key: str,
    identity: Callable[[Context], Mapping[str, Any]],
    scope: Callable[[], Scope],
    what: str,
    make: Callable[[OpenRun, dict[str, Any]], StoredRun],
    *,
    serves: Callable[[StoredRun], bool] = lambda _: True,
) -> StoredRun:
    """Return the run with this key from the store; else ``make`` makes and commits it.

    Args:
        identity: of the run, as a context sees its inputs; ``scope``: the code that makes it; ``what`` names it in
            messages.
        make: hears the environment as torch has it now.
        serves: whether a finished run has what is asked of it.

    Raises:
        InputChanged: the run has another key now, an input was edited or packages were installed meanwhile, or this
            process has loaded other code.
    """
    stored = context.store.get(key)
    if stored is not None and serves(stored):
        return stored
    settled = identity(context)
    if sha256_json(settled) != key:  # else what the store has under the present key would pass for it
        raise InputChanged(
            "out-of-date",
            f"the encoder, configuration, code, data or packages of {what} of {context.job.name} "
            "are no longer those it was trained with",
        )
    files = _files(context, scope())
    load(scope())

    def unchanged() -> None:
        again = context.anew()
        edited, changed = _differing(settled, identity(again)), _differing(files, _files(again, scope()))
        if edited or changed:
            rows = [str(context.rows_file), f"below {context.dataset.parent}"]  # what else decides is prepared
            parts = f"{listing(edited or ['encoder'])} ({listing(changed or rows)})"
            raise InputChanged(
                "input-changed", f"{parts} of {what} of {context.job.name} changed while it was computed"
            )
        load(scope())

    here = set_up(context.device, context.params.execution)
    try:
        with context.store.open(key, settled, guard=unchanged, environment=here) as working:
            finished = working.finished
            return finished if finished is not None and serves(finished) else make(working, here)
    except BaseException:
        _forget_what_was_read()
        raise


def _forget_what_was_read() -> None:
    """Forget what this process keeps by hashes of encoders: one may have been replaced as it was read."""
    kept_tokenizer.cache_clear()
    token_memory.cache_clear()
    vector_memory().clear()


def _files(context: Context, scope: Scope) -> dict[str, str]:
    """Hashes of the files of the code, by module or path, and of the encoders.

    Weights may be read from their file whenever they are first used, also where the key has them by another run.
    """
    encoders = {str(source.path / name): sha256 for source in context.sources for name, sha256 in source.files}
    return code_of(scope).files | encoders


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def scored_once(
    context: Context,
    identity: Callable[[Context], Mapping[str, Any]],
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

    return made_once(context, sha256_json(identity(context)), identity, lambda: scope, what, make)

"""A result is made once, under a lock, for its key; where an input was edited meanwhile, nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from regft_core.data.encode import token_memory, vector_memory
from regft_core.disk.canonical import sha256_json
from regft_core.errors import InputChanged, RunFailed
from regft_core.lazy import Tensor
from regft_core.names import listing
from regft_core.runs.code import Scope, code_of, load
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import encoder_sha256
from regft_core.runs.environment import set_up
from regft_core.runs.run_folder import OpenRun, StoredRun
from regft_core.runs.run_phase import kept_tokenizer

#: What is stored of a result: its values, named tensors by file, and the content of other files.
Made = tuple[dict[str, Any], Mapping[str, Mapping[str, Tensor]], Mapping[str, str | bytes]]


def made_once(
    context: Context,
    identity: Callable[[Context], Mapping[str, Any]],
    scope: Callable[[Context], Scope],
    what: str,
    make: Callable[[OpenRun, Mapping[str, Any]], Made],
    *,
    key: str | None = None,
    serves: Callable[[StoredRun], bool] = lambda _: True,
) -> StoredRun:
    """Return a result from the store; else ``make`` makes it. Beside its values are status, error and environment.

    Args:
        identity, scope: of the result, as a context sees its inputs, and the code that makes it; ``what`` names it.
        make: called with the environment as torch has it now; where it raises RunFailed, that is the result.
        key: under which it is asked for; by default that of what is here.
        serves: whether a finished run has what is asked of it.

    Raises InputChanged where what is here has another key, an input, package or loaded code was edited meanwhile.
    """
    settled = identity(context) if key is None else None
    key = key or sha256_json(settled)
    stored = context.store.get(key)
    if stored is not None and serves(stored):
        return stored
    settled, of_run = settled or identity(context), f"{what} of {context.job.name}"
    if sha256_json(settled) != key:  # else what the store has under the present key would pass for it
        what = f"the encoder, configuration, code, data or packages of {of_run}"
        raise InputChanged("out-of-date", f"{what} are no longer those it was trained with")
    code = scope(context)
    files = _files(context, code)
    load(code)

    def unchanged() -> None:
        again = context.anew()
        edited, changed = _differing(settled, identity(again)), _differing(files, _files(again, code))
        if edited or changed:
            rows = [str(context.rows_file), f"below {context.dataset.parent}"]  # what else decides is prepared
            parts = f"{listing(edited or ['encoder'])} ({listing(changed or rows)})"
            raise InputChanged("input-changed", f"{parts} of {of_run} changed while it was computed")
        load(code)

    here = set_up(context.device, context.params.execution)
    try:
        with context.store.open(key, settled, guard=unchanged, environment=here) as working:
            if working.finished is not None and serves(working.finished):
                return working.finished
            try:
                values, tensors, others = make(working, here)
            except RunFailed as error:
                values, tensors, others = {"status": "failed", "error": str(error)}, {}, {}
            result = {"status": "ok", "error": None, "environment": here, **values}
            same = here["deterministic"] or result["status"] != "ok"
            return working.commit(result, tensors, others, require_same_tensors=same)
    except BaseException:
        # What this process keeps by hashes of encoders: one may have been replaced as it was read.
        kept_tokenizer.cache_clear()
        encoder_sha256.cache_clear()
        token_memory.cache_clear()
        vector_memory().clear()
        raise


def _files(context: Context, scope: Scope) -> dict[str, str]:
    """Hashes of the files of the code, by module or path, and of the encoders, which may be read at any time."""
    sources = {phase.source for phase in context.phases}
    encoders = {str(source.path / name): sha256 for source in sources for name, sha256 in source.files}
    return code_of(scope).files | encoders


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))

"""Finished runs as bytes, for machines that share no folder: packed where a run was trained, added to another store."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from regft_core.errors import StoreError
from regft_core.io.files import claim_directory, explained, fill_in, fsync_tree, temporary_name
from regft_core.runs.store.run_store import RunStore, run_problems
from regft_core.runs.store.stored_run import MANIFEST, is_relative_name

#: Name of a file below the run's folder -> its content.
PackedRun = Mapping[str, bytes]


def pack(store: RunStore, key: str) -> PackedRun | None:
    """Return the files of a complete run, without its weights where those were pruned; None where there is none."""
    stored = store.get(key)
    if stored is None:
        return None
    names = [MANIFEST, *stored.manifest["files"]]
    return {name: (stored.path / name).read_bytes() for name in names if (stored.path / name).is_file()}


def add(store: RunStore, key: str, packed: PackedRun) -> None:
    """Put a packed run into a store that does not have it yet, once its hashes were checked.

    Raises StoreError: the bytes are not those of a complete run of this key, or the disk refuses.
    """
    target = store.directory(key)
    if store.holds(key):
        return
    temporary = temporary_name(target)
    try:
        with explained(target):
            temporary.mkdir(parents=True)
        for name, content in packed.items():
            if not is_relative_name(name):
                raise StoreError("damaged-run", f"run {key} arrived with a file outside of its folder: {name!r}")
            fill_in(temporary / name, content)
        if problems := run_problems(key, temporary):
            raise StoreError("damaged-run", f"run {key} arrived damaged: {'; '.join(problems)}\n    -> run it again")
        with explained(target):
            fsync_tree(temporary)
        claim_directory(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)

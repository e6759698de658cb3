"""Runs with their weights in ``weights/``, a folder that DVC tracks, so that ``dvc push`` and ``dvc pull`` bring them.

The run store itself is not tracked: it has the weights of every run, of earlier settings too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from regft_core.disk.files import atomic_directory
from regft_core.errors import StoreError
from regft_core.runs.run_folder import USED
from regft_core.runs.store import RunStore

FOLDER = "weights"


def share(root: Path, store: RunStore, keys: Iterable[str]) -> int:
    """Copy runs of the store into ``weights/``; return how many are new there.

    Raises StoreError for a run whose weights the store does not have.
    """
    new = 0
    for key in keys:
        run, target = store.get(key), root / FOLDER / key
        if target.is_dir():
            continue
        if run is None or not run.has_weights:
            hint = "`regft export` trains it again; raise store.budget_gb to keep weights"
            raise StoreError("no-weights", f"{store.path} has no weights of run {key}\n    -> {hint}")
        with atomic_directory(target) as folder:
            shutil.copytree(run.path, folder, ignore=shutil.ignore_patterns(USED), dirs_exist_ok=True)
        new += 1
    return new


def take_shared(root: Path, store: RunStore, key: str) -> None:
    """Put a run of ``weights/`` into the store, if that lacks it. Raises StoreError where it is damaged."""
    folder = root / FOLDER / key
    if folder.is_dir() and not store.holds(key):
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        store.add(key, {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})

"""Hashes again what is in a run store; slow, and sure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regft_core.errors import DamagedRun, StoreError
from regft_core.runs.store.features import damaged_files
from regft_core.runs.store.manifest import problems, read_manifest
from regft_core.runs.store.stored_run import TENSORS_SUFFIX, StoredRun

if TYPE_CHECKING:
    from regft_core.runs.store.run_store import RunStore


@dataclass(frozen=True)
class Damage:
    """Something in the store that is not what was written; ``path`` is what to delete."""

    key: str
    path: Path
    problem: str


def run_problems(key: str, path: Path) -> list[str]:
    """Hash every file of a complete run that should be there; return what is wrong.

    Raises ``StoreError`` when the system refuses to read it.
    """
    try:
        stored = StoredRun(key, path)
    except DamagedRun as damage:
        return [str(damage)]
    skip = "" if stored.has_weights else TENSORS_SUFFIX
    files = {n: e for n, e in stored.manifest["files"].items() if not (skip and n.endswith(skip))}
    return problems(path, files, lambda _: True)


def verify(store: RunStore) -> list[Damage]:
    """See ``RunStore.verify``."""
    found: list[Damage] = []
    for key in list(store.keys()):
        path = store.directory(key)
        try:
            found += [Damage(key, path, problem) for problem in run_problems(key, path)]
        except StoreError as error:
            found.append(Damage(key, path, str(error)))
    for key, partial in store.partials():
        for path in sorted(p for p in partial.glob("checkpoint-*") if not p.name.endswith(".unfinished")):
            try:
                found += [
                    Damage(key, path, problem)
                    for problem in problems(path, read_manifest(path)["files"], lambda _: True)
                ]
            except (StoreError, ValueError) as error:
                found.append(Damage(key, path, str(error)))
    return found + [Damage(*damage) for damage in damaged_files(store.path)]

"""Keeps the tensors of a run store within its budget: the least recently used go first, results stay."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout

from regft_core.disk.files import explained, remove, write_json
from regft_core.runs.caches import feature_files
from regft_core.runs.run_folder import DAMAGED, PARTIAL, PRUNED, TENSORS_SUFFIX, USED

if TYPE_CHECKING:
    from regft_core.runs.store import RunStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pruned:
    """Result of pruning, in bytes of tensors; the runs ``keys`` lost their weights or checkpoints."""

    freed_bytes: int
    remaining_bytes: int
    keys: tuple[str, ...]


@dataclass(frozen=True, order=True)
class _Item:
    """Something with tensors; sorted in the order of pruning: damaged runs, then the least recently used."""

    intact: bool
    used: float
    key: str
    path: Path
    size: int


def prune(store: RunStore, budget: int, keep: Collection[str]) -> Pruned:
    """Delete tensors until they fit ``budget`` bytes; see ``RunStore.prune``."""
    items = list(_items(store))
    total = remaining = sum(item.size for item in items)
    keys = []
    for item in sorted(items):
        if remaining <= budget:
            break
        if not (item.intact and item.key in keep) and _prune_one(store, item):
            remaining -= item.size
            keys += [item.key] * (item.path.suffix != TENSORS_SUFFIX)  # else vectors of an encoder, no run
    if remaining > budget:
        log.warning(
            "the run store %s holds %d bytes of tensors, its budget is %d: what remains is in use",
            *(store.path, remaining, budget),
        )
    return Pruned(total - remaining, remaining, tuple(keys))


def _items(store: RunStore) -> Iterator[_Item]:
    """Yield all that has tensors; opens no file."""
    for suffix in (DAMAGED, PARTIAL, ""):
        for key, path in store.directories(suffix):
            files = dict[str, os.stat_result]()
            with suppress(OSError):  # set aside, replaced or removed meanwhile
                files = {file.name: file.stat() for file in path.rglob("*") if file.is_file()}
            # Of a complete run only tensors can go; those that a killed pruning has left go first.
            sizes = [status.st_size for name, status in files.items() if suffix or name.endswith(TENSORS_SUFFIX)]
            times = [status.st_mtime for name, status in files.items() if suffix or name == USED]
            used = 0.0 if PRUNED in files else max(times, default=0.0)
            if sizes:
                yield _Item(suffix != DAMAGED, used, key, path, sum(sizes))
    for used, size, path in feature_files(store.path):
        yield _Item(True, used, path.stem, path, size)


def _prune_one(store: RunStore, item: _Item) -> bool:
    """Delete the tensors of one item; False where it is in use."""
    with explained(item.path):
        if item.path.suffix == TENSORS_SUFFIX:
            remove(item.path)
            return True
        try:
            lock = store.lock(item.key).acquire(timeout=0)
        except Timeout:
            return False
        with lock:
            if item.path.name != item.key:
                remove(item.path)  # damaged, or a checkpoint
            elif item.path.is_dir():
                # The mark first: weights that vanish without it would look like damage.
                write_json(item.path / PRUNED, {"reason": "budget"})
                _delete_tensors(item.path)
    return True


def _delete_tensors(run: Path) -> None:
    for file in run.glob("*" + TENSORS_SUFFIX):
        file.unlink()

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
from regft_core.errors import StoreError
from regft_core.runs.caches import feature_files
from regft_core.runs.stored_run import MANIFEST, PRUNED, TENSORS_SUFFIX, USED

if TYPE_CHECKING:
    from regft_core.runs.store import RunStore

log = logging.getLogger(__name__)

#: Endings of what lies beside the complete run of a key.
PARTIAL, DAMAGED = ".partial", ".damaged"


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
    for suffix in (DAMAGED, PARTIAL):
        for key, path in store.directories(suffix):
            statuses = [status for name in (path, *path.rglob("*")) if (status := _status(name)) is not None]
            size = sum(status.st_size for status in statuses[1:])
            yield _Item(suffix != DAMAGED, max((s.st_mtime for s in statuses), default=0.0), key, path, size)
    for key, path in store.directories():
        times, size = dict[str, float](), 0
        with suppress(OSError):  # set aside or replaced meanwhile
            for entry in os.scandir(path):
                times[entry.name] = entry.stat().st_mtime
                size += entry.stat().st_size if entry.name.endswith(TENSORS_SUFFIX) else 0
        item = _Item(True, times.get(USED, times.get(MANIFEST, 0.0)), key, path, size)
        if size and PRUNED in times:
            _prune_one(store, item)  # a pruning that was killed after its mark
        elif size:
            yield item
    for used, size, path in feature_files(store.path):
        yield _Item(True, used, path.stem, path, size)


def _status(path: Path) -> os.stat_result | None:
    with suppress(OSError):  # removed by its owner meanwhile
        return path.stat()
    return None


def _prune_one(store: RunStore, item: _Item) -> bool:
    """Delete the tensors of one item; False where it is in use."""
    try:
        with explained(item.path):
            if item.path.suffix == TENSORS_SUFFIX:
                remove(item.path)
                return True
            with store.lock(item.key).acquire(timeout=0):
                if item.path.name != item.key:
                    remove(item.path)  # damaged, or checkpoints
                elif item.path.is_dir():
                    # The mark first: weights that vanish without it would look like damage.
                    write_json(item.path / PRUNED, {"reason": "budget"})
                    _delete_tensors(item.path)
        return True
    except StoreError as error:
        if isinstance(error.__cause__, Timeout):
            return False
        raise


def _delete_tensors(run: Path) -> None:
    for file in run.glob("*" + TENSORS_SUFFIX):
        file.unlink()

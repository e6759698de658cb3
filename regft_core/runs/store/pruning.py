"""Keeps the tensors of a run store within its budget: the least recently used go first, results stay."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from regft_core.errors import StoreError
from regft_core.io.files import explained, may_not_write, remove, write_json
from regft_core.runs.store import features
from regft_core.runs.store.layout import DAMAGED, PARTIAL, directories, lock_of
from regft_core.runs.store.stored_run import MANIFEST, PRUNED, TENSORS_SUFFIX, USED

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


def prune(store: Path, budget: int, keep: Collection[str]) -> Pruned:
    """See ``RunStore.prune``."""
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
            "the run store %s holds %d bytes of tensors, its budget is %d: what remains is in use, or may not be "
            "deleted by this user",
            store,
            remaining,
            budget,
        )
    return Pruned(total - remaining, remaining, tuple(keys))


def _items(store: Path) -> Iterator[_Item]:
    """All that has tensors; opens no file."""
    for suffix in (DAMAGED, PARTIAL):
        for key, path in directories(store, suffix):
            used, size = _newest_and_size(path)
            yield _Item(suffix != DAMAGED, used, key, path, size)
    for key, path in directories(store):
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
    for used, size, path in features.files(store):
        yield _Item(True, used, path.stem, path, size)


def _newest_and_size(directory: Path) -> tuple[float, int]:
    newest, size = 0.0, 0
    for parent, _, names in os.walk(directory):
        for path in (parent, *(os.path.join(parent, name) for name in names)):
            with suppress(OSError):  # removed by its owner meanwhile
                status = os.stat(path)
                newest = max(newest, status.st_mtime)
                size += status.st_size if path != parent else 0
    return newest, size


def _prune_one(store: Path, item: _Item) -> bool:
    """Delete the tensors of one item; False where it is in use or may not be written."""
    if item.path.suffix == TENSORS_SUFFIX:
        return features.discarded(item.path)
    try:
        with explained(item.path), lock_of(store, item.key).acquire(timeout=0):
            if item.path.name != item.key:
                remove(item.path)  # damaged, or checkpoints
            elif item.path.is_dir():
                # The mark first: weights that vanish without it would look like damage.
                write_json(item.path / PRUNED, {"reason": "budget"})
                _delete_tensors(item.path)
        return True
    except StoreError as error:
        if isinstance(error.__cause__, Timeout) or may_not_write(error):
            return False
        raise


def _delete_tensors(run: Path) -> None:
    for file in run.glob("*" + TENSORS_SUFFIX):
        file.unlink()

"""Keeps the tensors of a run store within its budget; the rule is in ``store.py``."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regft_core.errors import StoreError
from regft_core.io.files import write_json
from regft_core.io.write_errors import explained, may_not_write
from regft_core.runs.store.features import discarded, feature_files
from regft_core.runs.store.killpoints import killpoint
from regft_core.runs.store.ledger import at_most, note_look
from regft_core.runs.store.manifest import MANIFEST
from regft_core.runs.store.needed import NEEDED_DAYS, needed_keys
from regft_core.runs.store.stored_run import PRUNED, TENSORS_SUFFIX, USED

if TYPE_CHECKING:
    from regft_core.runs.store.run_store import RunStore

log = logging.getLogger(__name__)

Outcome = Literal["pruned", "needed", "in use", "read-only"]


@dataclass(frozen=True)
class Pruned:
    """What pruning did, in bytes of tensors; the runs ``keys`` lost their weights or checkpoints.

    ``remaining_bytes`` may be too high where nothing had to be deleted (see ``ledger.py``). ``needed_bytes`` is
    the part of what remains that other work, or other processes, need.
    """

    freed_bytes: int
    remaining_bytes: int
    keys: tuple[str, ...]
    needed_bytes: int = 0


def prune(store: RunStore, budget: int | None, keep: Collection[str]) -> Pruned:
    """See ``RunStore.prune``; runs are listed only when the ledger does not rule out that the budget is exceeded."""
    held = at_most(store.path)
    if budget is None or (held is not None and held <= budget):
        return Pruned(0, held or 0, ())
    candidates = _candidates(store)
    remaining = total = sum(size for _, _, _, size, _ in candidates)
    pruned, kept = [], dict.fromkeys(("needed", "in use", "read-only"), 0)
    for is_whole, _, key, size, path in sorted(candidates):
        if remaining <= budget:
            break
        outcome: Outcome = "in use" if is_whole and key in keep else _prune_one(store, key, path)
        if outcome == "pruned":
            remaining -= size
            pruned += [key] * (path.suffix != TENSORS_SUFFIX)  # else vectors of an encoder, no run
        else:
            kept[outcome] += size
    note_look(store.path, remaining)
    if remaining > budget:
        reasons = [f"{kept['in use']} bytes are in use"]
        if kept["needed"]:
            reasons.append(
                f"{kept['needed']} bytes are needed by processes that work (on another host: for {NEEDED_DAYS} day "
                "after it was last heard of)"
            )
        if kept["read-only"]:
            reasons.append(f"{kept['read-only']} bytes may not be deleted by this user")
        log.warning(
            "the run store %s holds %d bytes, its budget is %d: %s", store.path, remaining, budget, ", ".join(reasons)
        )
    return Pruned(total - remaining, remaining, tuple(pruned), kept["needed"])


def _candidates(store: RunStore) -> list[tuple[bool, float, str, int, Path]]:
    """(whether it is spared on request, last use, key, bytes, directory) of all that has tensors; opens no file."""
    found: list[tuple[bool, float, str, int, Path]] = []
    for key, path in store.damaged():
        used, size = _newest_and_size(path)
        found.append((False, used, key, size, path))
    for key in list(store.keys()):
        path = store.directory(key)
        used, size, pruned = _use_and_tensors(path)
        if size and pruned:
            _prune_one(store, key, path)  # a pruning that was killed after its mark
        elif size:
            found.append((True, used, key, size, path))
    for key, path in store.partials():
        used, size = _newest_and_size(path)
        found.append((True, used, key, size, path))
    found += [(True, used, path.stem, size, path) for used, size, path in feature_files(store.path)]
    return found


def _use_and_tensors(path: Path) -> tuple[float, int, bool]:
    """When a complete run was last used, the bytes of its tensors, and whether it is marked as pruned."""
    times: dict[str, float] = {}
    size, pruned = 0, False
    with suppress(OSError):  # set aside or replaced meanwhile
        for entry in os.scandir(path):
            if entry.name.endswith(TENSORS_SUFFIX):
                size += entry.stat().st_size
            elif entry.name in (USED, MANIFEST):
                times[entry.name] = entry.stat().st_mtime
            pruned = pruned or entry.name == PRUNED
    return times.get(USED, times.get(MANIFEST, 0.0)), size, pruned


def _prune_one(store: RunStore, key: str, path: Path) -> Outcome:
    if path.suffix == TENSORS_SUFFIX:
        return "pruned" if discarded(path) else "read-only"
    lock = store.lock(key)
    try:
        if not lock.try_acquire():
            return "in use"
        with explained(path):
            if not path.is_dir():
                return "pruned"  # the run was finished, or given up, since the store was listed
            if ".damaged-" in path.name:
                shutil.rmtree(path)
                log.warning("%s, a damaged run that was set aside, was deleted to stay within the budget", path)
                return "pruned"
            if key in needed_keys(store.path):  # asked as late as possible: a process may have begun since
                return "needed"
            if path.name.endswith(".partial"):
                shutil.rmtree(path)
                return "pruned"
            # The mark first: weights that vanish without it would look like damage.
            write_json(path / PRUNED, {"reason": "budget"})
            killpoint("prune.marked")
            for file in path.glob("*" + TENSORS_SUFFIX):
                file.unlink()
        return "pruned"
    except StoreError as error:
        if not may_not_write(error):
            raise
        return "read-only"
    finally:
        lock.release()


def _newest_and_size(directory: Path) -> tuple[float, int]:
    newest, size = 0.0, 0
    for parent, _, names in os.walk(directory):
        for path in (parent, *(os.path.join(parent, name) for name in names)):
            try:
                status = os.stat(path)
            except OSError:
                continue  # removed by its owner meanwhile
            newest = max(newest, status.st_mtime)
            size += status.st_size if path != parent else 0
    return newest, size

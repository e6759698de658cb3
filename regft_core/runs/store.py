"""The run store: finished runs that are reused, killed runs that are resumed.

Layout: ``<store>/runs/<first two digits>/<key>/`` is a complete run (``identity.json``,
``result.json``, ``<name>.safetensors``, other files, ``manifest.json`` with their hashes),
``<key>.partial/`` one that is being trained (checkpoints), ``<key>.lock`` says by whom. The
key is the hash of everything that determines the run, so the store may be shared by projects
and machines. Nothing here imports torch before tensors are read or written.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.errors import StoreError
from regft_core.io import explained, sweep_stale, write_json
from regft_core.runs.killpoints import killpoint
from regft_core.runs.locks import KeyLock
from regft_core.runs.manifest import problems, read_manifest
from regft_core.runs.stored import PRUNED, TENSORS_SUFFIX, StoredRun, run_key
from regft_core.runs.working import WorkingRun

__all__ = ["Damage", "Pruned", "RunStore", "StoredRun", "WorkingRun", "run_key"]

log = logging.getLogger(__name__)

_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Damage:
    """Something in the store that is not what was written; ``path`` is what to delete."""

    key: str
    path: Path
    problem: str


@dataclass(frozen=True)
class Pruned:
    """What pruning did, in bytes of tensors; ``keys`` lost their weights or checkpoints."""

    freed_bytes: int
    remaining_bytes: int
    keys: tuple[str, ...]


class RunStore:
    """Finished and unfinished runs under ``path``; cheap to make, safe to use from many processes."""

    def __init__(self, path: Path | str, budget_bytes: int | None = None) -> None:
        self.path = Path(path)
        self.budget_bytes = budget_bytes

    @staticmethod
    def run_key(identity: Mapping[str, Any]) -> str:
        """Return the key of an identity: SHA-256 of its canonical JSON, 64 hexadecimal digits."""
        return run_key(identity)

    def directory(self, key: str) -> Path:
        """Return where the complete run of ``key`` is, or would be; raises ``ValueError`` for no key."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a run key (64 hexadecimal digits)")
        return self.path / "runs" / key[:2] / key

    def _lock(self, key: str) -> KeyLock:
        return KeyLock(self.directory(key).with_name(f"{key}.lock"))

    def get(self, key: str) -> StoredRun | None:
        """Return the complete run of ``key``, or None.

        Sizes of all files and hashes of identity and result are checked; a damaged run is
        reported in a warning and counts as absent, so that it is trained again. Needs no lock.
        """
        path = self.directory(key)
        if not path.is_dir():
            return None
        try:
            return StoredRun(key, path)
        except StoreError as error:
            log.warning("%s (it counts as absent)", error)
            return None

    def open(self, key: str, identity: Mapping[str, Any], timeout: float | None = None) -> WorkingRun:
        """Take the exclusive right to produce ``key``; waits while another process has it.

        If the run is complete by then, ``.finished`` of the returned run has it. Raises
        ``ValueError`` if ``key`` is not the identity's key, ``StoreError`` if the store cannot
        be written or ``timeout`` seconds were not enough.
        """
        if run_key(identity) != key:
            raise ValueError(f"{key} is not the key of this identity, which has {run_key(identity)}")
        lock = self._lock(key)
        lock.acquire(timeout)
        try:
            target = self.directory(key)
            sweep_stale(target.parent, key)
            return WorkingRun(key, identity, target, lock, self.get(key))
        except BaseException:
            lock.release()
            raise

    def keys(self) -> Iterator[str]:
        """Yield the keys of all complete runs, in order."""
        for path in sorted((self.path / "runs").glob("[0-9a-f][0-9a-f]/*")):
            if _KEY.fullmatch(path.name) and path.is_dir():
                yield path.name

    def _partials(self) -> Iterator[tuple[str, Path]]:
        for path in sorted((self.path / "runs").glob("[0-9a-f][0-9a-f]/*.partial")):
            key = path.name.removesuffix(".partial")
            if _KEY.fullmatch(key) and path.is_dir():
                yield key, path

    # ------------------------------------------------------------------------- budget

    def prune(self, budget_bytes: int | None = None, keep: Collection[str] = ()) -> Pruned:
        """Delete tensors, least recently used first, until they fit the budget.

        Weights of complete runs (their results stay) and checkpoints of runs nobody works on.
        Keys in ``keep`` and runs that are open are spared, so more than the budget may remain.
        ``budget_bytes`` defaults to the store's; without any budget nothing happens.
        """
        budget = self.budget_bytes if budget_bytes is None else budget_bytes
        candidates: list[tuple[float, str, int, Path]] = []
        for key in self.keys():
            stored = self.get(key)
            if stored is not None and stored.has_weights:
                candidates.append((stored.last_used(), key, stored.tensor_bytes, stored.path))
            elif stored is not None and any(stored.path.glob("*" + TENSORS_SUFFIX)):
                self._prune_one(key, stored.path)  # a pruning that was killed after its mark
        for key, path in self._partials():
            used, size = _newest_and_size(path)
            candidates.append((used, key, size, path))
        remaining = total = sum(size for _, _, size, _ in candidates)
        pruned = []
        for _, key, size, path in sorted(candidates):
            if budget is None or remaining <= budget:
                break
            if key not in keep and self._prune_one(key, path):
                remaining -= size
                pruned.append(key)
        if budget is not None and remaining > budget:
            log.warning(
                "the run store %s holds %d bytes, its budget is %d: the rest is in use", self.path, remaining, budget
            )
        return Pruned(total - remaining, remaining, tuple(pruned))

    def _prune_one(self, key: str, path: Path) -> bool:
        lock = self._lock(key)
        if not lock.try_acquire():
            return False
        try:
            with explained(path):
                if not path.is_dir():
                    return True  # the run was finished, or given up, since the store was listed
                if path.name.endswith(".partial"):
                    shutil.rmtree(path)
                else:
                    # The mark first: weights that vanish without it would look like damage.
                    write_json(path / PRUNED, {"reason": "budget"})
                    killpoint("prune.marked")
                    for file in path.glob("*" + TENSORS_SUFFIX):
                        file.unlink()
            return True
        finally:
            lock.release()

    # ------------------------------------------------------------------------- verification

    def verify(self) -> list[Damage]:
        """Hash every file of every complete run and checkpoint again; return what is damaged."""
        found: list[Damage] = []
        for key in self.keys():
            path = self.directory(key)
            try:
                stored = StoredRun(key, path)
                skip = "" if stored.has_weights else TENSORS_SUFFIX
                files = {n: e for n, e in stored.manifest["files"].items() if not (skip and n.endswith(skip))}
                found += [Damage(key, path, problem) for problem in problems(path, files, lambda _: True)]
            except StoreError as error:
                found.append(Damage(key, path, str(error)))
        for key, partial in self._partials():
            for path in sorted(p for p in partial.glob("checkpoint-*") if not p.name.endswith(".unfinished")):
                try:
                    found += [
                        Damage(key, path, problem)
                        for problem in problems(path, read_manifest(path)["files"], lambda _: True)
                    ]
                except (StoreError, ValueError) as error:
                    found.append(Damage(key, path, str(error)))
        return found


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

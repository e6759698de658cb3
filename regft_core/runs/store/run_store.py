"""The run store: finished runs that are reused, killed runs that are resumed.

Layout: ``<store>/runs/<first two digits>/<key>/`` is a complete run (``identity.json``,
``result.json``, ``<name>.safetensors``, other files, ``manifest.json`` with their hashes).
Beside it, ``<key>.partial/`` is one that is being trained (checkpoints), ``<key>.lock`` says by
whom, and ``<key>.damaged-<n>/`` is a run that was found damaged. The key is the hash of everything that
determines the run, so the store may be shared by projects and machines. Nothing here imports
torch before tensors are read or written.

Pruning deletes tensors only, the least recently used first, until they fit the budget. It spares
runs that are open, the keys its caller names, and the keys that any living process, on any machine
that shares the store, has said to need (``needed``). ``features/`` beside ``runs/`` has vectors of frozen encoders.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regft_core.errors import DamagedRun, PrunedRun, StoreError
from regft_core.io.owned_names import sweep_stale
from regft_core.io.write_errors import may_not_write
from regft_core.runs.store.locks import KeyLock
from regft_core.runs.store.manifest import MANIFEST
from regft_core.runs.store.needed import NEEDED_DAYS, Needed, needed
from regft_core.runs.store.pruning import Pruned, prune
from regft_core.runs.store.quarantine import ASIDE, put_in_quarantine
from regft_core.runs.store.stored_run import StoredRun, run_key
from regft_core.runs.store.verification import Damage, run_problems, verify
from regft_core.runs.store.working_run import HOW_TO_WRITE, WorkingRun

if TYPE_CHECKING:
    from regft_core.runs.store.remote import Remote

__all__ = ["NEEDED_DAYS", "Damage", "DamagedRun", "Needed", "Pruned", "RunStore", "StoredRun", "WorkingRun", "run_key"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_KEY = re.compile(r"[0-9a-f]{64}")


class RunStore:
    """Finished and unfinished runs under ``path``; cheap to make, safe to use from many processes."""

    def __init__(self, path: Path | str, budget_bytes: int | None = None, remote: Remote | None = None) -> None:
        self.path = Path(path)
        self.budget_bytes = budget_bytes
        #: Where finished runs are shared with hosts that do not see ``path``.
        self.remote = remote

    @staticmethod
    def run_key(identity: Mapping[str, Any]) -> str:
        """Return the key of an identity: SHA-256 of its canonical JSON, 64 hexadecimal digits."""
        return run_key(identity)

    def directory(self, key: str) -> Path:
        """Return where the complete run of ``key`` is, or would be; raises ``ValueError`` for no key."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a run key (64 hexadecimal digits)")
        return self.path / "runs" / key[:2] / key

    def lock(self, key: str) -> KeyLock:
        """Return the lock of ``key``, not acquired; who holds it alone may change the run."""
        return KeyLock(self.directory(key).with_name(f"{key}.lock"))

    def get(self, key: str) -> StoredRun | None:
        """Return the complete run of ``key``, or None.

        Sizes of all files and hashes of identity and result are checked; a damaged run is
        reported in a warning and counts as absent, so that it is trained again. Needs no lock. A run that only
        the remote storage has is fetched, but for its weights (see ``restore``); else nothing is written.
        Raises ``StoreError`` when the system refuses to read the run.
        """
        path = self.directory(key)
        damage: DamagedRun | None = None
        # Twice, for without the lock the run may be pruned, replaced or set aside while it is read.
        for _ in range(2):
            if not path.is_dir() and not (self.remote is not None and self.remote.fetch(key, path, tensors=False)):
                return None
            try:
                return StoredRun(key, path)
            except DamagedRun as error:
                damage = error
        log.warning("%s (it counts as absent)", damage)
        return None

    def restore(self, key: str) -> StoredRun | None:
        """Like ``get``, with the weights if they are here or in the remote storage; raises like ``open``."""
        stored = self.get(key)
        if stored is None or not stored.pruned or self.remote is None:
            return stored
        with self.open(key, stored.identity) as run:
            return run.finished

    def holds(self, key: str) -> bool:
        """Whether there is a run of ``key``, without looking inside: it may prove damaged. False for what is no key."""
        return bool(_KEY.fullmatch(key)) and (self.directory(key) / MANIFEST).is_file()

    def open(
        self,
        key: str,
        identity: Mapping[str, Any],
        timeout: float | None = None,
        *,
        guard: Callable[[], None] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> WorkingRun:
        """Take the exclusive right to produce ``key``; waits while another process has it.

        If the run is complete by then, ``.finished`` of the returned run has it; a damaged one is
        set aside first, with a warning, and ``.finished`` is None. In a store one may only read,
        a complete run is handed out without a lock.

        Args:
            timeout: seconds to wait; None as long as it takes.
            guard: called right before the run becomes complete; if it raises, nothing is stored.
            environment: what the bits may depend on without being in the identity, as JSON (kind
                of device, threads); a checkpoint of another environment is not continued.

        Raises ``ValueError`` if ``key`` is not the identity's key, ``StoreError`` if the store cannot
        be written (and the run is not complete) or ``timeout`` seconds were not enough.
        """
        if run_key(identity) != key:
            raise ValueError(f"{key} is not the key of this identity, which has {run_key(identity)}")
        lock, target = self.lock(key), self.directory(key)
        try:
            lock.acquire(timeout)
        except StoreError as error:
            return WorkingRun(key, identity, target, None, self._without_lock(key, error))
        try:
            sweep_stale(target.parent, key)
            finished = self._finished(key)
            if self.remote is not None and (finished is None or finished.pruned) and self.remote.fetch(key, target):
                finished = self._finished(key)
            return WorkingRun(
                key, identity, target, lock, finished, guard=guard, environment=environment, remote=self.remote
            )
        except BaseException:
            lock.release()
            raise

    def _without_lock(self, key: str, refused: StoreError) -> StoredRun:
        """Return the complete run although its lock file cannot be made, or raise what is in the way."""
        if not isinstance(refused.__cause__, OSError):
            raise refused  # it is locked
        finished = self.get(key)
        if finished is None and may_not_write(refused):
            raise StoreError(
                "store-read-only",
                f"run {key} is not complete in the run store {self.path}, and it cannot be trained there, because "
                f"the store may only be read: {HOW_TO_WRITE}",
            ) from refused
        if finished is None:
            raise refused
        return finished

    def _finished(self, key: str) -> StoredRun | None:
        """The complete run, its lock being held; a damaged one is set aside."""
        path = self.directory(key)
        if not path.is_dir():
            return None
        try:
            return StoredRun(key, path)
        except DamagedRun as damage:
            put_in_quarantine(path, damage.reason)
            return None

    # ------------------------------------------------------------------------- damage

    def quarantine(self, key: str, reason: str, timeout: float | None = None) -> Path | None:
        """Rename a run that proved damaged to ``<key>.damaged-<n>``, so that it is trained again.

        Waits for the process that has the run open, then hashes all its files: a run that is intact (trained
        again by another process meanwhile) stays and None is returned, as when there is none;
        else the new path. For a run that this thread has open use ``WorkingRun.quarantine``.

        Raises ``StoreError`` when the store cannot be written or ``timeout`` was not enough.
        """
        lock, path = self.lock(key), self.directory(key)
        try:
            lock.acquire(timeout)
            return put_in_quarantine(path, reason) if path.is_dir() and run_problems(key, path) else None
        except StoreError as error:
            if not may_not_write(error):
                raise
            raise StoreError(
                "store-read-only",
                f"{DamagedRun(key, path, reason).what}, and it cannot be set aside, because the store may only be "
                f"read: {HOW_TO_WRITE}",
            ) from error
        finally:
            lock.release()

    def read_intact(self, ensure: Callable[[], StoredRun], read: Callable[[StoredRun], T]) -> T:
        """Return ``read(ensure())``; a run found damaged in it is set aside and ensured once more.

        So is one that another process prunes between the two.
        ``ensure`` finds or trains the run and must have closed it; ``read`` loads from it, for
        instance ``StoredRun.load_tensors``. Raises what they raise.
        """
        try:
            return read(ensure())
        except DamagedRun as damage:
            self.quarantine(damage.key, damage.reason)
        except PrunedRun as gone:
            log.info("%s: once more", gone)
        return read(ensure())

    def keys(self) -> Iterator[str]:
        """Yield the keys of all complete runs, in order."""
        for path in sorted((self.path / "runs").glob("[0-9a-f][0-9a-f]/*")):
            if _KEY.fullmatch(path.name) and path.is_dir():
                yield path.name

    def partials(self) -> Iterator[tuple[str, Path]]:
        """Yield keys and directories of the runs that have checkpoints, in order."""
        for path in sorted((self.path / "runs").glob("[0-9a-f][0-9a-f]/*.partial")):
            key = path.name.removesuffix(".partial")
            if _KEY.fullmatch(key) and path.is_dir():
                yield key, path

    def damaged(self) -> Iterator[tuple[str, Path]]:
        """Yield keys and directories of the damaged runs that were set aside, in order."""
        for path in sorted((self.path / "runs").glob("[0-9a-f][0-9a-f]/*.damaged-*")):
            if (match := ASIDE.fullmatch(path.name)) and path.is_dir():
                yield match["key"], path

    # ------------------------------------------------------------------------- budget

    def needed(self, keys: Iterable[str]) -> AbstractContextManager[Needed]:
        """Spare the weights and checkpoints of ``keys``, here and on other hosts, inside a ``with`` block.

        The keys need not be there yet. Weights that are found afterwards with the run open (``open``) stay.
        ``Needed.done(keys)`` tells which are no longer needed; a key that is given n times (by n pieces of work) is
        needed until it was done n times. All of it ends with the block, or with the process; what a process of
        another host needs, ``NEEDED_DAYS`` after it was last heard of. In a store one may only read it does nothing.
        Raises ``StoreError`` when the disk refuses otherwise.
        """
        return needed(self.path, keys)

    def prune(self, budget_bytes: int | None = None, keep: Collection[str] = ()) -> Pruned:
        """Delete tensors, least recently used first, until they fit the budget.

        Damaged runs that were set aside go first, as a whole; then weights of complete runs (their
        results stay) and checkpoints of runs nobody works on. Keys in ``keep`` and ``needed`` ones, runs
        that are open and those that may not be written are spared, so more than the budget may
        remain, with a warning. ``budget_bytes`` defaults to the store's; without any
        budget nothing happens.
        """
        return prune(self, self.budget_bytes if budget_bytes is None else budget_bytes, keep)

    # ------------------------------------------------------------------------- verification

    def verify(self) -> list[Damage]:
        """Hash every file of every complete run and checkpoint, and kept vectors, again; return what is damaged."""
        return verify(self)

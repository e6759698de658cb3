"""The run store: finished runs that are reused, killed runs that are resumed.

Layout: ``<store>/runs/<first two digits>/<key>/`` is a complete run (``identity.json``,
``result.json``, ``<name>.safetensors``, other files, ``manifest.json`` with their hashes).
Beside it, ``<key>.partial/`` is one that is being trained (checkpoints), ``<key>.lock`` is locked
by the process that trains it, and ``<key>.damaged/`` is a run that was found damaged. The key is the
hash of everything that determines the run, so the store may be shared by projects and machines.
``features/`` beside ``runs/`` has vectors of frozen encoders. Nothing here imports torch before
tensors are read or written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from filelock import BaseFileLock, Timeout

from regft_core.errors import DamagedRun, PrunedRun, StoreError
from regft_core.io.files import explained, fsync_directory, may_not_write, remove, sweep_stale
from regft_core.runs.store import features
from regft_core.runs.store.layout import DAMAGED, KEY, PARTIAL, directories, directory, lock_of
from regft_core.runs.store.pruning import Pruned, prune
from regft_core.runs.store.stored_run import MANIFEST, StoredRun, problems, read_manifest, run_key
from regft_core.runs.store.working_run import HOW_TO_WRITE, WorkingRun

log = logging.getLogger(__name__)

T = TypeVar("T")

#: A process that waits for a run this long logs it.
PATIENCE_SECONDS = 5.0


class NotStored(Exception):
    """A run was asked for that is not in the store; a caller that only looks it up computes it elsewhere."""


@dataclass(frozen=True)
class Damage:
    """Something in the store that is not what was written; ``path`` is what to delete."""

    key: str
    path: Path
    problem: str


class RunStore:
    """Finished and unfinished runs under ``path``; cheap to make, safe to use from many processes.

    ``stored_only``: to look runs up. ``NotStored`` is raised for any run that is not complete.
    """

    def __init__(self, path: Path | str, budget_bytes: int | None = None, *, stored_only: bool = False) -> None:
        self.path = Path(path)
        self.budget_bytes = budget_bytes
        self.stored_only = stored_only

    @staticmethod
    def run_key(identity: Mapping[str, Any]) -> str:
        """Return the key of an identity: SHA-256 of its canonical JSON, 64 hexadecimal digits."""
        return run_key(identity)

    def directory(self, key: str) -> Path:
        """Return where the complete run of ``key`` is, or would be; raises ``ValueError`` for no key."""
        return directory(self.path, key)

    def get(self, key: str) -> StoredRun | None:
        """Return the complete run of ``key``, or None.

        Sizes of all files and hashes of identity and result are checked; a damaged run is
        reported in a warning and counts as absent, so that it is trained again. Needs no lock, writes nothing.

        Raises ``StoreError`` when the system refuses to read the run, ``NotStored`` in a store to look runs up.
        """
        path = self.directory(key)
        damage: DamagedRun | None = None
        # Twice, for without the lock the run may be pruned, replaced or set aside while it is read.
        for _ in range(2):
            if not path.is_dir():
                damage = None
                break
            try:
                return StoredRun(key, path)
            except DamagedRun as error:
                damage = error
        if damage is not None:
            log.warning("%s (it counts as absent)", damage)
        if self.stored_only:
            raise NotStored(key)
        return None

    def holds(self, key: str) -> bool:
        """Whether there is a run of ``key``, without looking inside: it may prove damaged. False for what is no key."""
        return bool(KEY.fullmatch(key)) and (self.directory(key) / MANIFEST).is_file()

    # ------------------------------------------------------------------------- one process per run

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
        be written (and the run is not complete) or ``timeout`` seconds were not enough, ``NotStored`` in a store to
        look runs up.
        """
        if self.stored_only:
            raise NotStored(key)
        if run_key(identity) != key:
            raise ValueError(f"{key} is not the key of this identity, which has {run_key(identity)}")
        target = self.directory(key)
        try:
            lock = self._locked(key, timeout)
        except StoreError as error:
            return WorkingRun(key, identity, target, None, self._without_lock(key, error))
        try:
            sweep_stale(target.parent, key)
            finished = self._finished(key)
            return WorkingRun(key, identity, target, lock, finished, guard=guard, environment=environment)
        except BaseException:
            lock.release()
            raise

    def _locked(self, key: str, timeout: float | None = None) -> BaseFileLock:
        """Return the acquired lock of ``key``; raises ``StoreError``."""
        lock = lock_of(self.path, key)
        try:
            with explained(lock.lock_file):
                Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
                try:
                    lock.acquire(timeout=PATIENCE_SECONDS if timeout is None else timeout)
                except Timeout:
                    if timeout is not None:
                        raise StoreError(
                            "store-locked",
                            f"{lock.lock_file}: still locked by another process after {timeout:.0f} s; wait for that "
                            "process, or end it: its lock goes with it and the run is resumed",
                        ) from None
                    log.warning("waiting for run %s, which another process has open", key)
                    lock.acquire()
        except RuntimeError:  # filelock's, where waiting would never end
            raise StoreError(
                "run-open-already", f"{lock.lock_file}: this thread has the run open already; close it first"
            ) from None
        return lock

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
            _set_aside(path, damage.reason)
            return None

    def read_intact(self, ensure: Callable[[], StoredRun], read: Callable[[StoredRun], T]) -> T:
        """Return ``read(ensure())``; a run found damaged in it is set aside and ensured once more.

        So is one that another process prunes between the two.
        ``ensure`` finds or trains the run and must have closed it; ``read`` loads from it, for
        instance ``StoredRun.load_tensors``. Raises what they raise.
        """
        try:
            return read(ensure())
        except DamagedRun as damage:
            self._set_aside_if_damaged(damage)
        except PrunedRun as gone:
            log.info("%s: once more", gone)
        return read(ensure())

    def _set_aside_if_damaged(self, damage: DamagedRun) -> None:
        """Set a run aside under its lock, unless it is intact: another process may have trained it again meanwhile."""
        key, path = damage.key, self.directory(damage.key)
        try:
            with self._locked(key):
                if path.is_dir() and run_problems(key, path):
                    _set_aside(path, damage.reason)
        except StoreError as error:
            if not may_not_write(error):
                raise
            raise StoreError(
                "store-read-only",
                f"{damage.what}, and it cannot be set aside, because the store may only be read: {HOW_TO_WRITE}",
            ) from error

    # ------------------------------------------------------------------------- the whole store

    def keys(self) -> Iterator[str]:
        """Yield the keys of all complete runs, in order."""
        return (key for key, _ in directories(self.path))

    def partials(self) -> Iterator[tuple[str, Path]]:
        """Yield keys and directories of the runs that have checkpoints, in order."""
        return directories(self.path, PARTIAL)

    def verify(self) -> list[Damage]:
        """Hash every file of every complete run and checkpoint, and kept vectors, again; return what is damaged."""
        damaged: list[Damage] = []
        checkpoints = [
            (key, path)
            for key, partial in self.partials()
            for path in sorted(partial.glob("checkpoint-*"))
            if path.suffix != ".unfinished"
        ]
        for key, path in [*directories(self.path), *checkpoints]:
            try:
                complete = path.name == key
                wrong = run_problems(key, path) if complete else problems(path, read_manifest(path)["files"])
            except (StoreError, ValueError) as error:
                wrong = [str(error)]
            damaged += [Damage(key, path, problem) for problem in wrong]
        return damaged + [Damage(*damage) for damage in features.damaged_files(self.path)]

    def prune(self, budget_bytes: int | None = None, keep: Collection[str] = ()) -> Pruned:
        """Delete tensors, least recently used first, until they fit the budget.

        Damaged runs that were set aside go first, as a whole; then weights of complete runs (their results stay),
        checkpoints of runs nobody works on, and kept vectors. Keys in ``keep``, runs that are open and those that may
        not be written are spared, so more than the budget may remain, with a warning. ``budget_bytes`` defaults to
        the store's; without any budget nothing happens.
        """
        budget = self.budget_bytes if budget_bytes is None else budget_bytes
        return Pruned(0, 0, ()) if budget is None else prune(self.path, budget, keep)


def run_problems(key: str, path: Path) -> list[str]:
    """Hash every file of a complete run that should be there; return what is wrong. Raises ``Unreadable``."""
    try:
        return StoredRun(key, path).problems()
    except DamagedRun as damage:
        return [str(damage)]


def _set_aside(target: Path, reason: str) -> None:
    """Rename a damaged run, whose lock is held, to ``<key>.damaged`` with a warning; an earlier one goes."""
    aside = target.with_name(target.name + DAMAGED)
    with explained(target):
        remove(aside)
        target.rename(aside)
        fsync_directory(target.parent)
    log.warning("run %s is damaged: %s. It is now %s, and is trained again when needed", target.name, reason, aside)

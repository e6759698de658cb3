"""The run store: finished runs that are reused, killed runs that are resumed. Imports torch for tensors only.

``<store>/runs/<first two digits>/<key>/`` is a complete run (``identity.json``, ``result.json``,
``<name>.safetensors``, other files, ``manifest.json`` with their hashes). Beside it, ``<key>.partial/`` is one that is
being trained, ``<key>.lock`` is locked by its process, and ``<key>.damaged/`` was found damaged. The key is the hash of
everything that determines the run, so projects and machines may share a store.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from filelock import FileLock, Timeout

from regft_core.disk.files import atomic_directory, explained, fill_in, fsync, remove, replacing
from regft_core.errors import DamagedRun, PrunedRun, StoreError
from regft_core.runs.run_folder import DAMAGED, MANIFEST, PARTIAL, TENSORS_SUFFIX, OpenRun, StoredRun

log = logging.getLogger(__name__)

T = TypeVar("T")

#: A process that waits for a run this long logs it.
PATIENCE_SECONDS = 5.0
_KEY = re.compile(r"[0-9a-f]{64}")


class NotStored(Exception):
    """A run was asked for that is not in the store; a caller that only looks it up computes it elsewhere."""


class Pruned(NamedTuple):
    """Result of pruning, in bytes of tensors; the runs ``keys`` lost their weights or checkpoints."""

    freed_bytes: int
    remaining_bytes: int
    keys: tuple[str, ...]


class RunStore:
    """Runs under ``path``, for many processes; ``stored_only``: ``NotStored`` is raised for what is not complete."""

    def __init__(self, path: Path | str, budget_bytes: int | None = None, *, stored_only: bool = False) -> None:
        self.path = Path(path)
        self.budget_bytes = budget_bytes
        self.stored_only = stored_only

    def directory(self, key: str) -> Path:
        """Return where the complete run of ``key`` is, or would be; raises ``ValueError`` for no key."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a run key (64 hexadecimal digits)")
        return self.path / "runs" / key[:2] / key

    def get(self, key: str) -> StoredRun | None:
        """Return the complete run of ``key``, or None, also for a damaged one. Raises StoreError, ``NotStored``."""
        path = self.directory(key)
        try:
            if path.is_dir():
                return StoredRun(key, path)
        except DamagedRun as damage:
            if path.is_dir():  # else another process has it set aside
                log.warning("%s (it counts as absent)", damage)
        if self.stored_only:
            raise NotStored(key)
        return None

    def holds(self, key: str) -> bool:
        """Whether there is a run of ``key``, without looking inside: it may prove damaged. False for what is no key."""
        return bool(_KEY.fullmatch(key)) and (self.directory(key) / MANIFEST).is_file()

    @contextmanager
    def open(
        self,
        key: str,
        identity: Mapping[str, Any],
        *,
        guard: Callable[[], None] = lambda: None,
        environment: Mapping[str, Any] | None = None,
    ) -> Iterator[OpenRun]:
        """Have the exclusive right to produce ``key`` within the block; waits while another process has it.

        ``guard`` may refuse before the run becomes complete. A checkpoint of another ``environment`` is not continued.
        """
        if self.stored_only:
            raise NotStored(key)
        with self._locked(key):
            finished = self._intact(key)
            yield OpenRun(key, identity, self.directory(key), finished, guard, environment)

    @contextmanager
    def _locked(self, key: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the lock of ``key`` within the block; without ``wait`` yields False where another process has it."""
        # No fallback to a file that merely exists: it would outlive its process.
        lock = FileLock(self.directory(key).with_name(f"{key}.lock"), fallback_to_soft=False)
        with explained(lock.lock_file):
            Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
            with suppress(Timeout):
                lock.acquire(timeout=PATIENCE_SECONDS if wait else 0)
            if wait and not lock.is_locked:
                log.warning("waiting for run %s, which another process has open", key)
                lock.acquire()
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def _intact(self, key: str, *, hashed: bool = False) -> StoredRun | None:
        """Return the complete run, whose lock is held; sets it aside if damaged. ``hashed``: look at every file."""
        path = self.directory(key)
        if not path.is_dir():
            return None
        try:
            run = StoredRun(key, path)
            if hashed:
                run.check()
            return run
        except DamagedRun as damage:
            aside = path.with_name(path.name + DAMAGED)
            with explained(path):
                remove(aside)
                path.rename(aside)
                fsync(path.parent)
            what = "run %s is damaged: %s. It is now %s, and is trained again when needed"
            log.warning(what, key, damage.reason, aside)
            return None

    def read_intact(self, ensure: Callable[[], StoredRun], read: Callable[[StoredRun], T]) -> T:
        """Return ``read(ensure())``; a run that is found damaged or pruned in it is found or trained once more."""
        try:
            return read(ensure())
        except DamagedRun as damage:
            with self._locked(damage.key):  # another process may have trained it again meanwhile
                self._intact(damage.key, hashed=True)
        except PrunedRun as gone:
            log.info("%s: once more", gone)
        return read(ensure())

    def pack(self, key: str) -> dict[str, bytes] | None:
        """Return the files of a complete run, without its weights where those were pruned; None where there is none."""
        stored = self.get(key)
        if stored is None:
            return None
        names = [MANIFEST, *stored.entries]
        return {name: (stored.path / name).read_bytes() for name in names if (stored.path / name).is_file()}

    def add(self, key: str, packed: Mapping[str, bytes]) -> None:
        """Put a packed run, or tensors that were pruned here, into the store; StoreError where it is of no such run."""
        with self._locked(key):
            if (stored := self._intact(key)) is not None:
                for name in stored.pruned:
                    # Tensors of another training would not be those that its scores are of.
                    if hashlib.sha256(packed.get(name, b"")).hexdigest() == stored.entries[name]["sha256"]:
                        with replacing(stored.path / name) as temporary:
                            temporary.write_bytes(packed[name])
                            fsync(temporary)
                return
            with atomic_directory(self.directory(key)) as folder:
                for name, content in packed.items():
                    if Path(name).is_absolute() or ".." in Path(name).parts:
                        raise StoreError("damaged-run", f"run {key} arrived with a file outside of its folder: {name}")
                    fill_in(folder / name, content)
                StoredRun(key, folder).check()

    def keys(self) -> Iterator[str]:
        """Yield the keys of all complete runs, in order."""
        return (key for key, _ in self._folders())

    def _folders(self, suffix: str = "") -> Iterator[tuple[str, Path]]:
        """Yield key and folder of all complete runs, or of those beside them with this suffix, in order."""
        for path in sorted((self.path / "runs").glob(f"[0-9a-f][0-9a-f]/*{suffix}")):
            key = path.name.removesuffix(suffix)
            if _KEY.fullmatch(key) and path.is_dir():
                yield key, path

    def prune(self, budget_bytes: int | None = None, keep: Collection[str] = ()) -> Pruned:
        """Delete tensors, least recently used first, until they fit the budget (by default the store's, if it has one).

        Damaged runs go first, as a whole; results stay. Keys in ``keep`` and open runs are spared, with a warning.
        """
        budget = self.budget_bytes if budget_bytes is None else budget_bytes
        if budget is None:
            return Pruned(0, 0, ())
        items = sorted(self._with_tensors())
        total = remaining = sum(size for *_, size in items)
        pruned = []
        for intact, _, key, path, size in items:
            if remaining <= budget:
                break
            if not (intact and key in keep) and self._prune_one(key, path):
                remaining -= size
                pruned.append(key)
        if remaining > budget:
            what = "the run store %s holds %d bytes of tensors, its budget is %d: what remains is in use"
            log.warning(what, self.path, remaining, budget)
        return Pruned(total - remaining, remaining, tuple(pruned))

    def _with_tensors(self) -> Iterator[tuple[bool, float, str, Path, int]]:
        """Yield all that has tensors: whether it is intact, when it was last used, its key, folder and bytes."""
        for suffix in (DAMAGED, PARTIAL, ""):
            for key, path in self._folders(suffix):
                with suppress(OSError):  # set aside, replaced or removed meanwhile
                    files = path.rglob("*" if suffix else f"*{TENSORS_SUFFIX}")  # of a complete run only tensors can go
                    if size := sum(file.stat().st_size for file in files if file.is_file()):
                        yield suffix != DAMAGED, path.stat().st_mtime, key, path, size

    def _prune_one(self, key: str, path: Path) -> bool:
        """Delete the tensors of one folder; False where it is in use."""
        with self._locked(key, wait=False) as held, explained(path):
            if held and path.name != key:
                remove(path)  # damaged, or a checkpoint
            elif held:
                for file in path.glob("*" + TENSORS_SUFFIX):
                    file.unlink()
        return held

"""A run that is being trained: checkpoints that survive a kill, and the final commit."""

from __future__ import annotations

import json
import logging
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from filelock import BaseFileLock

from regft_core.disk.canonical import canonical_json, json_text
from regft_core.disk.files import claim_directory, explained, fill_in, fsync_tree, remove, replace_directory
from regft_core.disk.reading import Unreadable, read_json
from regft_core.disk.tensors import read_tensors, write_tensors
from regft_core.errors import RegftError, StoreError
from regft_core.runs.stored_run import (
    IDENTITY,
    MANIFEST,
    RESULT,
    TENSORS_SUFFIX,
    USED,
    StoredRun,
    manifest_of,
    problems,
    read_manifest,
)

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

#: The files of a checkpoint.
TENSORS, META = f"tensors{TENSORS_SUFFIX}", "meta.json"
#: Two, so that a checkpoint damaged by the disk costs one interval and not the run.
CHECKPOINTS_KEPT = 2
_CHECKPOINT = re.compile(r"checkpoint-(\d{6,})")


class WorkingRun:
    """The exclusive right to produce one run; made by ``RunStore.open``, a context manager.

    ``finished`` is the complete run if there is one already: use it (train only if its weights
    were pruned and are needed). The lock is held until ``close``; leaving early or dying keeps
    the checkpoints (``checkpoint-<number>/`` in ``path``) for the next process that opens the key.
    ``guard`` and ``environment``: see ``RunStore.open``.
    """

    def __init__(
        self,
        key: str,
        identity: Mapping[str, Any],
        target: Path,
        lock: BaseFileLock,
        finished: StoredRun | None,
        *,
        guard: Callable[[], None] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        self.key = key
        self.identity = identity
        self.path = target.with_name(target.name + ".partial")
        self.finished = finished
        self.guard = guard
        self._environment = None if environment is None else canonical_json(environment)
        self._target = target
        self._lock = lock
        if self.path.is_dir():
            complete = finished is not None and (finished.has_weights or not finished.tensor_names)
            with explained(self.path):  # the lock is ours, so all of it belongs to a process that is gone
                for entry in list(self.path.iterdir()):
                    if complete or not _CHECKPOINT.fullmatch(entry.name):
                        remove(entry)
                if complete:
                    self.path.rmdir()

    def __enter__(self) -> WorkingRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock; checkpoints stay unless the run was committed."""
        self._lock.release()

    def _require_lock(self) -> None:
        if not self._lock.is_locked:
            raise StoreError("run-closed", f"run {self.key} is closed; open it again to write to it")

    # ------------------------------------------------------------------------- checkpoints

    def _checkpoints(self) -> list[tuple[int, Path]]:
        """Return number and path of each checkpoint, the oldest first."""
        paths = [(_CHECKPOINT.fullmatch(path.name), path) for path in self.path.glob("*")]
        return sorted((int(match[1]), path) for match, path in paths if match)

    def _discard_checkpoints(self) -> None:
        with explained(self.path):
            for _, path in self._checkpoints():
                shutil.rmtree(path)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Store everything needed to continue; the newest two checkpoints are kept.

        The environment, when the run was opened with one, is stored with it. Raises ``StoreError``
        when the disk refuses (earlier checkpoints stay), ``TypeError`` or ``ValueError`` when
        ``meta`` is not JSON.
        """
        self._require_lock()
        earlier = self._checkpoints()
        target = self.path / f"checkpoint-{earlier[-1][0] + 1 if earlier else 1:06d}"
        temporary = self.path / f"{target.name}.unfinished"
        environment = None if self._environment is None else json.loads(self._environment)
        try:
            fill_in(temporary / META, json_text(meta).encode())
            write_tensors(temporary / TENSORS, tensors)
            self._seal(temporary, environment=environment)
            self._publish_checkpoint(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        with explained(self.path):
            for _, path in earlier[: len(earlier) + 1 - CHECKPOINTS_KEPT]:
                shutil.rmtree(path)

    def _publish_checkpoint(self, temporary: Path, target: Path) -> None:
        claim_directory(temporary, target)

    def load_checkpoint(self, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return ``(tensors, meta)`` of the newest intact checkpoint, or None to start afresh.

        A damaged checkpoint is removed with a warning and the one before it is used. When the
        newest was made in another environment (``RunStore.open``), all are removed with a warning.
        """
        self._require_lock()
        for _, path in reversed(self._checkpoints()):
            try:
                manifest = read_manifest(path)
                if changed := problems(path, {name: manifest["files"][name] for name in (TENSORS, META)}):
                    raise ValueError("; ".join(changed))
                made_in = canonical_json(manifest.get("environment"))
                if self._environment in (None, made_in):
                    return read_tensors(path / TENSORS, device), read_json(path / META, dict)
            except Unreadable:
                raise
            except (StoreError, ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("run %s: %s is damaged (%s); using the one before it", self.key[:12], path.name, error)
                with explained(path):
                    shutil.rmtree(path)
                continue
            log.warning(
                "run %s: %s was made in another environment, on which the bits of a result may depend (%s then, %s "
                "now): the checkpoints are deleted and the run starts afresh",
                *(self.key[:12], path.name, made_in, self._environment),
            )
            self._discard_checkpoints()
            return None
        return None

    # ------------------------------------------------------------------------- commit

    def commit(
        self,
        result: Mapping[str, Any],
        tensors: Mapping[str, Mapping[str, Tensor]] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        *,
        require_same_tensors: bool = True,
    ) -> StoredRun:
        """Make the run complete in one step and drop its checkpoints.

        ``tensors`` maps a name (``weights``) to named tensors; ``files`` maps relative paths
        (``curves.csv``, ``predictions/dev.jsonl``) to contents. A run whose training failed is
        committed too, its ``result`` records that.

        When the key is complete already and only its weights were pruned, the new tensors must
        hash the same as the old ones: otherwise ``StoreError`` is raised and the earlier result
        stays, because numbers derived from it would describe another model. With
        ``require_same_tensors=False`` (devices without deterministic kernels) the new run
        replaces the old one as a whole.

        The guard, when the run was opened with one, is called last before the run becomes
        complete; what it raises is passed on and nothing is stored. If that is a ``RegftError``,
        a verdict on what this process made, the checkpoints go too.

        Raises ``StoreError`` when the disk refuses; checkpoints stay then.
        """
        self._require_lock()
        temporary = self.path / f"commit-{secrets.token_hex(4)}.unfinished"
        try:
            self._write_contents(temporary, result, tensors or {}, files or {})
            manifest = self._seal(temporary)
            if require_same_tensors:
                self._compare_with_pruned(manifest)
            self._ask_guard()
            self._publish(temporary)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        with explained(self.path):
            shutil.rmtree(self.path)
        self.finished = StoredRun(self.key, self._target)
        return self.finished

    def _write_contents(
        self,
        directory: Path,
        result: Mapping[str, Any],
        tensors: Mapping[str, Mapping[str, Tensor]],
        files: Mapping[str, str | bytes],
    ) -> None:
        fill_in(directory / IDENTITY, json_text(self.identity).encode())
        fill_in(directory / RESULT, json_text(result).encode())
        fill_in(directory / USED, b"")
        for name, content in files.items():
            fill_in(directory / name, content.encode("utf-8") if isinstance(content, str) else content)
        for name, named in tensors.items():
            write_tensors(directory / (name + TENSORS_SUFFIX), named)

    def _seal(self, directory: Path, **fields: Any) -> dict[str, Any]:
        """Write the manifest of a folder's files, and make all of them durable."""
        with explained(directory):
            manifest = manifest_of(directory, **fields)
            fill_in(directory / MANIFEST, json_text(manifest).encode())
            fsync_tree(directory)
        return manifest

    def _publish(self, directory: Path) -> None:
        """Put a sealed run in its place, in one step."""
        replace_directory(directory, self._target)

    def _compare_with_pruned(self, manifest: Mapping[str, Any]) -> None:
        if self.finished is None:
            return
        for name in self.finished.tensor_names:
            new, old = (
                m["files"].get(name + TENSORS_SUFFIX, {}).get("sha256") for m in (manifest, self.finished.manifest)
            )
            if new != old:
                raise StoreError(
                    "not-reproducible",
                    f"run {self.key}: trained again, its {name} differ from those of the stored result "
                    f"({new} instead of {old}). The training is not reproducible here (GPU without "
                    "execution.deterministic, other hardware). To accept the new model with a new result, delete "
                    f"{self._target} and repeat the stages",
                )

    def _ask_guard(self) -> None:
        if self.guard is None:
            return
        try:
            self.guard()
        except RegftError:
            self._discard_checkpoints()
            raise

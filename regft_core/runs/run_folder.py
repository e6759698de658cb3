"""The folder of one run in the store: complete (``StoredRun``), or being produced under its lock (``OpenRun``)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from regft_core.disk.canonical import canonical_json, json_text, sha256_file, sha256_json
from regft_core.disk.files import atomic_directory, explained, fill_in, remove
from regft_core.disk.reading import Unreadable, read_json
from regft_core.disk.tensors import read_checked, read_tensors, write_checked, write_tensors
from regft_core.errors import DamagedRun, PrunedRun, RegftError, StoreError, text_of
from regft_core.lazy import Tensor

log = logging.getLogger(__name__)

IDENTITY, RESULT, MANIFEST = "identity.json", "result.json", "manifest.json"
TENSORS_SUFFIX = ".safetensors"
#: Endings of what lies beside the complete run of a key.
PARTIAL, DAMAGED = ".partial", ".damaged"
#: In a partial run: the newest checkpoint.
CHECKPOINT = f"checkpoint{TENSORS_SUFFIX}"

#: File -> ``bytes``, ``sha256``.
Entries = Mapping[str, Mapping[str, Any]]


class StoredRun:
    """A complete run: identity, result, files, and its tensors unless pruned. Raises ``DamagedRun``, ``StoreError``."""

    def __init__(self, key: str, path: Path) -> None:
        self.key = key
        self.path = path
        try:
            self.entries: Entries = read_json(path / MANIFEST, dict)["files"]
            # The store may be shared: a name must not lead out of the run's own directory.
            if any(name.startswith("/") or ".." in PurePosixPath(name).parts for name in self.entries):
                raise ValueError("the manifest names a file that is not inside the run")
            self.check(hashed=(IDENTITY, RESULT))
            self.identity: dict[str, Any] = read_json(path / IDENTITY, dict)
            self.result: dict[str, Any] = read_json(path / RESULT, dict)
            if sha256_json(self.identity) != key:
                raise ValueError("its identity belongs to another key")
        except (Unreadable, DamagedRun):
            raise
        except (StoreError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedRun(key, path, text_of(error)) from error

    def check(self, hashed: tuple[str, ...] | None = None) -> None:
        """Compare files, and hashes (only of ``hashed``), with the manifest. Raises ``DamagedRun``, ``Unreadable``."""
        gone = self.pruned
        for name in self.entries:
            if name not in gone:
                self._compare(name, hashed is None or name in hashed)

    def _compare(self, name: str, hashed: bool = True) -> Path:
        """Return the path of a file that is as the manifest has it; raises as ``check``, and for an unknown one."""
        if name not in self.entries:
            raise StoreError("not-in-run", f"run {self.key} has no {name}; it has: {', '.join(self.entries)}")
        path, entry, problem = self.path / name, self.entries[name], ""
        try:
            size = os.path.getsize(path)
            if size != entry["bytes"]:
                problem = f"{size} bytes, expected {entry['bytes']}"
            elif hashed and sha256_file(path) != entry["sha256"]:
                problem = "its content has changed since it was written"
        except FileNotFoundError:
            problem = "missing"
        except OSError as error:
            raise Unreadable(path, error) from error
        if problem:
            raise DamagedRun(self.key, self.path, f"{name}: {problem}")
        return path

    @property
    def pruned(self) -> list[str]:
        """Files of tensors that are not there any more."""
        tensors = (name + TENSORS_SUFFIX for name in self.tensor_names)
        return [name for name in tensors if not (self.path / name).exists()]

    @property
    def has_weights(self) -> bool:
        """Whether the tensors are (still) there; False after pruning and for runs without tensors."""
        return bool(self.tensor_names) and not self.pruned

    @property
    def tensor_names(self) -> list[str]:
        """Names under which tensors were committed, pruned or not."""
        return sorted(n.removesuffix(TENSORS_SUFFIX) for n in self.entries if n.endswith(TENSORS_SUFFIX))

    def tensors_sha256(self, name: str = "weights") -> str:
        """Return the hash of one tensor file, also when it was pruned."""
        return str(self.entries[name + TENSORS_SUFFIX]["sha256"])

    def load_tensors(self, name: str = "weights") -> dict[str, Tensor]:
        """Return committed tensors, hash-checked, on the CPU; raises as ``check``, and ``PrunedRun``."""
        with suppress(OSError):  # a hint for pruning
            os.utime(self.path)
        try:
            return read_tensors(self._compare(name + TENSORS_SUFFIX))
        except StoreError:
            if not self.pruned:  # else perhaps by another process, a moment ago
                raise
        budget = "its budget (store.budget_gb in params.yaml); open the run and train it again, or raise the budget"
        raise PrunedRun("run-pruned", f"the weights of run {self.key} were deleted to keep the store within {budget}")

    @property
    def files(self) -> list[str]:
        return [n for n in self.entries if n not in (IDENTITY, RESULT) and not n.endswith(TENSORS_SUFFIX)]

    def read_bytes(self, name: str) -> bytes:
        """Return a committed file, hash-checked; raises ``StoreError`` when unknown, ``DamagedRun``."""
        return self._compare(name).read_bytes()


@dataclass
class OpenRun:
    """The exclusive right to produce one run; leaving early or dying keeps the checkpoint in ``path``."""

    key: str
    identity: Mapping[str, Any]
    target: Path
    finished: StoredRun | None
    guard: Callable[[], None] = lambda: None
    environment: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.finished is not None and not self.finished.pruned:
            self._discard(self.path)  # of a process that died right after its commit

    @property
    def path(self) -> Path:
        return self.target.with_name(self.target.name + PARTIAL)

    def save_checkpoint(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Store everything needed to continue; where ``StoreError`` is raised the checkpoint before stays."""
        texts = {"meta": canonical_json(meta), "environment": canonical_json(self.environment)}
        write_checked(self.path / CHECKPOINT, tensors, texts)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the checkpoint's tensors and meta, or None; one that is damaged or of another environment goes."""
        path, now = self.path / CHECKPOINT, canonical_json(self.environment)
        try:
            tensors, texts = read_checked(path)
            if texts["environment"] == now:
                return tensors, json.loads(texts["meta"])
            reason = f"was made in another environment ({texts['environment']} then, {now} now)"
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreadable(path, error) from error
        except ValueError as error:
            reason = f"is damaged ({error})"
        log.warning("run %s: its checkpoint %s: it is deleted and the run starts afresh", self.key[:12], reason)
        self._discard(path)
        return None

    def _discard(self, path: Path) -> None:
        with explained(path):
            remove(path)

    def commit(
        self,
        result: Mapping[str, Any],
        tensors: Mapping[str, Mapping[str, Tensor]] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        *,
        require_same_tensors: bool = True,
    ) -> StoredRun:
        """Make the run complete in one step and drop its checkpoint; a failed training is a result, too.

        ``files``: relative path -> content. ``require_same_tensors``: as those of the stored result, if pruned ones are
        replaced. Raises StoreError where the disk refuses, and what the guard raises: nothing is stored then.
        """
        contents = {IDENTITY: json_text(self.identity), RESULT: json_text(result), **(files or {})}
        with atomic_directory(self.target, self.path / "commit") as folder:
            for name, content in contents.items():
                fill_in(folder / name, content.encode() if isinstance(content, str) else content)
            for name, named in (tensors or {}).items():
                write_tensors(folder / (name + TENSORS_SUFFIX), named)
            paths = sorted(path for path in folder.rglob("*") if path.is_file())
            entries = {
                path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
                for path in paths
            }
            fill_in(folder / MANIFEST, json_text({"files": entries}).encode())
            before = self.finished.entries if require_same_tensors and self.finished is not None else {}
            for name, entry in before.items():
                new = entries.get(name, {}).get("sha256")
                if name.endswith(TENSORS_SUFFIX) and new != entry["sha256"]:
                    what = (
                        f"run {self.key}: trained again, its {name} differ from those of the stored result ({new} "
                        f"instead of {entry['sha256']}). The training is not reproducible here (GPU without "
                        "execution.deterministic, other hardware). To accept the new model with a new result, delete "
                    )
                    raise StoreError("not-reproducible", f"{what}{self.target} and repeat the stages")
            try:
                self.guard()
            except RegftError:
                self._discard(self.path / CHECKPOINT)
                raise
        self._discard(self.path)
        self.finished = StoredRun(self.key, self.target)
        return self.finished

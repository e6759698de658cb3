"""A finished run in the store."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.errors import DamagedRun, PrunedRun, StoreError, text_of
from regft_core.io.canonical import canonical_json, sha256_file, sha256_text
from regft_core.io.reading import Unreadable, read_json, unless_refused
from regft_core.io.tensors import read_tensors
from regft_core.runs.store.manifest import problems, read_manifest

if TYPE_CHECKING:
    from torch import Tensor

IDENTITY, RESULT = "identity.json", "result.json"
#: Its time is when the run was last used. Not in the manifest: it may change.
USED = "used"
#: Present when the weights were deleted to stay within the budget. Not in the manifest either.
PRUNED = "pruned.json"
#: In a run that was made under another key (run/rekey.py): which one, and why it is the same.
REKEYED = "rekeyed.json"
TENSORS_SUFFIX = ".safetensors"


def run_key(identity: Any) -> str:
    """Return the SHA-256 of the identity's canonical JSON: equal identities, and only those, share it."""
    return sha256_text(canonical_json(identity))


class StoredRun:
    """A complete run: identity, result, files, and its tensors unless they were pruned.

    Raises ``DamagedRun`` on construction when the directory is not a complete, intact run: sizes
    of all files and hashes of the identity and the result are compared with the manifest. Raises
    another ``StoreError`` when the system refuses to read it.
    """

    def __init__(self, key: str, path: Path) -> None:
        self.key = key
        self.path = path
        try:
            self.manifest = read_manifest(path)
            files = self.manifest["files"]
            missing = [name for name in (IDENTITY, RESULT) if name not in files]
            if missing:
                raise ValueError(f"the manifest does not list {', '.join(missing)}")
            expected = files if self.has_weights else {n: e for n, e in files.items() if not n.endswith(TENSORS_SUFFIX)}
            found = problems(path, expected, lambda name: name in (IDENTITY, RESULT))
            if found:
                raise ValueError("; ".join(found))
            self.identity: dict[str, Any] = read_json(path / IDENTITY)
            self.result: dict[str, Any] = read_json(path / RESULT)
            if run_key(self.identity) != key:
                raise ValueError("its identity belongs to another key")
        except Unreadable:
            raise
        except (StoreError, ValueError, TypeError) as error:
            raise self._damaged(text_of(error)) from error

    def _damaged(self, what: str) -> DamagedRun:
        return DamagedRun(self.key, self.path, what)

    @property
    def has_weights(self) -> bool:
        """Whether the tensors are (still) there; False after pruning and for runs without tensors."""
        return bool(self.tensor_names) and not (self.path / PRUNED).exists()

    @property
    def pruned(self) -> bool:
        """Whether its tensors were deleted to stay within the budget."""
        return (self.path / PRUNED).exists()

    @property
    def tensor_names(self) -> list[str]:
        """Names under which tensors were committed, pruned or not."""
        return sorted(n.removesuffix(TENSORS_SUFFIX) for n in self.manifest["files"] if n.endswith(TENSORS_SUFFIX))

    @property
    def tensor_bytes(self) -> int:
        """Bytes of the tensor files as committed."""
        return sum(e["bytes"] for n, e in self.manifest["files"].items() if n.endswith(TENSORS_SUFFIX))

    def tensors_sha256(self, name: str = "weights") -> str:
        """Return the hash of one tensor file, also when it was pruned; raises ``StoreError`` if unknown."""
        entry = self.manifest["files"].get(name + TENSORS_SUFFIX)
        if entry is None:
            known = ", ".join(self.tensor_names) or "none"
            raise StoreError("not-in-run", f"run {self.key} has no tensors {name!r}; it has: {known}")
        return str(entry["sha256"])

    def load_tensors(self, name: str = "weights", device: str = "cpu") -> dict[str, Tensor]:
        """Return committed tensors, hash-checked.

        Raises ``DamagedRun`` when they are not what was written, ``PrunedRun`` when they were pruned, another
        ``StoreError`` when they cannot be read now.
        """
        expected = self.tensors_sha256(name)
        path = self.path / (name + TENSORS_SUFFIX)
        pruned = PrunedRun(
            "run-pruned",
            f"the weights of run {self.key} were deleted to keep the store within its budget "
            "(store.budget_gb in params.yaml); open the run and train it again, or raise the budget",
        )
        if not self.has_weights:
            raise pruned
        self.touch()
        try:
            if sha256_file(path) != expected:
                raise self._damaged(f"{path.name}: its content has changed since it was written")
            return read_tensors(path, device)
        except FileNotFoundError as error:
            if not self.has_weights:  # pruned by another process a moment ago
                raise pruned from error
            raise self._damaged(f"{path.name}: missing") from error
        except OSError as error:
            unless_refused(error, path)
            raise self._damaged(f"{path.name}: cannot be read: {error.strerror}") from error

    @property
    def files(self) -> list[str]:
        """Names of the files committed beside result and tensors."""
        own = (IDENTITY, RESULT, REKEYED)
        return [n for n in self.manifest["files"] if n not in own and not n.endswith(TENSORS_SUFFIX)]

    def read_bytes(self, name: str) -> bytes:
        """Return a committed file, hash-checked; raises ``StoreError`` when unknown, ``DamagedRun``."""
        if name not in self.files:
            raise StoreError(
                "not-in-run", f"run {self.key} has no file {name!r}; it has: {', '.join(self.files) or 'none'}"
            )
        found = problems(self.path, {name: self.manifest["files"][name]}, lambda _: True)
        if found:
            raise self._damaged(found[0])
        return (self.path / name).read_bytes()

    def read_text(self, name: str) -> str:
        """Return a committed UTF-8 file, hash-checked; raises like ``read_bytes``."""
        return self.read_bytes(name).decode("utf-8")

    def touch(self) -> None:
        """Note that the run was used now."""
        with suppress(OSError):  # a hint for pruning; a store one may only read works too
            now = time.time()
            (self.path / USED).touch()
            os.utime(self.path / USED, (now, now))

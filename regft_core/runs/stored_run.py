"""A finished run in the store: identity, result, tensors and files, with a manifest of their hashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from regft_core.disk.canonical import canonical_json, sha256_file, sha256_text
from regft_core.disk.reading import Unreadable, read_json
from regft_core.disk.tensors import read_tensors
from regft_core.errors import DamagedRun, PrunedRun, StoreError, text_of

if TYPE_CHECKING:
    from torch import Tensor

IDENTITY, RESULT, MANIFEST = "identity.json", "result.json", "manifest.json"
#: Its time is when the run was last used. Not in the manifest: it may change.
USED = "used"
#: Present when the weights were deleted to stay within the budget. Not in the manifest either.
PRUNED = "pruned.json"
TENSORS_SUFFIX = ".safetensors"


def run_key(identity: Any) -> str:
    """Return the SHA-256 of the identity's canonical JSON: equal identities, and only those, share it."""
    return sha256_text(canonical_json(identity))


# --------------------------------------------------------------------------------- manifest


def manifest_of(directory: Path, **fields: Any) -> dict[str, Any]:
    """Hash every file in ``directory``; return its manifest, which is written last and makes it complete."""
    files = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and name not in (MANIFEST, USED):
            files[name] = {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    return {"files": files, **fields}


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return a manifest of the right shape; raises ``StoreError`` or ``ValueError`` otherwise."""
    manifest: dict[str, Any] = read_json(directory / MANIFEST, dict)
    for name, entry in dict(manifest.get("files") or {}).items():
        # The store may be shared: a name must not lead out of the run's own directory.
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"the manifest names {name}, which is not inside the run")
        if [type(entry.get(part)) for part in ("bytes", "sha256")] != [int, str]:
            raise ValueError(f"the manifest has no size and hash for {name}")
    return manifest


def problems(
    directory: Path, files: Mapping[str, Mapping[str, Any]], hashed: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """Compare files with their manifest entries: sizes always, hashes where ``hashed(name)``.

    Raises ``Unreadable`` (a ``StoreError``) when the system refuses to read one, which is no damage.
    """
    wrong = []
    for name, entry in files.items():
        path = directory / name
        try:
            size = os.path.getsize(path)
            if size != entry["bytes"]:
                wrong.append(f"{name}: {size} bytes, expected {entry['bytes']}")
            elif hashed(name) and sha256_file(path) != entry["sha256"]:
                wrong.append(f"{name}: its content has changed since it was written")
        except FileNotFoundError:
            wrong.append(f"{name}: missing")
        except OSError as error:
            raise Unreadable(path, error) from error
    return wrong


# -------------------------------------------------------------------------------------- run


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
            if not {IDENTITY, RESULT} <= self.manifest["files"].keys():
                raise ValueError(f"the manifest does not list {IDENTITY} and {RESULT}")
            if changed := problems(path, self._expected(), lambda name: name in (IDENTITY, RESULT)):
                raise ValueError("; ".join(changed))
            self.identity: dict[str, Any] = read_json(path / IDENTITY, dict)
            self.result: dict[str, Any] = read_json(path / RESULT, dict)
            if run_key(self.identity) != key:
                raise ValueError("its identity belongs to another key")
        except Unreadable:
            raise
        except (StoreError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(text_of(error)) from error

    def _damaged(self, reason: str) -> DamagedRun:
        return DamagedRun(self.key, self.path, reason)

    def _expected(self) -> dict[str, dict[str, Any]]:
        """Manifest entries of the files that have to be there."""
        files: dict[str, dict[str, Any]] = self.manifest["files"]
        return {name: files[name] for name in files if not (self.pruned and name.endswith(TENSORS_SUFFIX))}

    def problems(self) -> list[str]:
        """Hash every file that has to be there; return what is wrong. Raises ``Unreadable``."""
        return problems(self.path, self._expected())

    @property
    def pruned(self) -> bool:
        """Whether its tensors were deleted to stay within the budget."""
        return (self.path / PRUNED).exists()

    @property
    def has_weights(self) -> bool:
        """Whether the tensors are (still) there; False after pruning and for runs without tensors."""
        return bool(self.tensor_names) and not self.pruned

    @property
    def tensor_names(self) -> list[str]:
        """Names under which tensors were committed, pruned or not."""
        return sorted(n.removesuffix(TENSORS_SUFFIX) for n in self.manifest["files"] if n.endswith(TENSORS_SUFFIX))

    def tensors_sha256(self, name: str = "weights") -> str:
        """Return the hash of one tensor file, also when it was pruned."""
        return str(self._entry(name + TENSORS_SUFFIX)["sha256"])

    def _entry(self, name: str) -> dict[str, Any]:
        files: dict[str, dict[str, Any]] = self.manifest["files"]
        if name not in files:
            raise StoreError("not-in-run", f"run {self.key} has no {name}; it has: {', '.join(files)}")
        return files[name]

    def load_tensors(self, name: str = "weights", device: str = "cpu") -> dict[str, Tensor]:
        """Return committed tensors, hash-checked.

        Raises ``DamagedRun`` when they are not what was written, ``PrunedRun`` when they were pruned, another
        ``StoreError`` when they cannot be read now.
        """
        file = name + TENSORS_SUFFIX
        entry = self._entry(file)
        with suppress(OSError):  # a hint for pruning
            (self.path / USED).touch()
        if not self.pruned:
            changed = problems(self.path, {file: entry})
            if not changed:
                try:
                    return read_tensors(self.path / file, device)
                except StoreError as error:
                    changed = [text_of(error)]
            if not self.pruned:  # else by another process, a moment ago
                raise self._damaged("; ".join(changed))
        raise PrunedRun(
            "run-pruned",
            f"the weights of run {self.key} were deleted to keep the store within its budget "
            "(store.budget_gb in params.yaml); open the run and train it again, or raise the budget",
        )

    @property
    def files(self) -> list[str]:
        """Names of the files committed beside result and tensors."""
        return [n for n in self.manifest["files"] if n not in (IDENTITY, RESULT) and not n.endswith(TENSORS_SUFFIX)]

    def read_bytes(self, name: str) -> bytes:
        """Return a committed file, hash-checked; raises ``StoreError`` when unknown, ``DamagedRun``."""
        if changed := problems(self.path, {name: self._entry(name)}):
            raise self._damaged(changed[0])
        return (self.path / name).read_bytes()

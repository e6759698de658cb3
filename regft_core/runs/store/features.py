"""Vectors of a frozen encoder, kept beside the runs: one file for each batch, named by all that determines it.

``<store>/features/<first two digits>/<key>.safetensors``. A file is written to a temporary place and renamed, so
workers that compute one batch at the same time write the same bytes twice. A damaged file is said in a warning and
computed again. The least recently used files go when all of them exceed ``LIMIT_BYTES``, and with the weights of runs
when the store exceeds its budget. Nothing is wrong without them.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from regft_core.errors import StoreError
from regft_core.io.files import write_bytes

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

FOLDER = "features"
#: Of all files together; about 700,000 rows of a base-size encoder.
LIMIT_BYTES = 2_000_000_000


class FeatureFiles:
    """The kept vectors of one run store. What is put is written by ``write``, once its inputs were checked again."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._waiting: dict[str, Tensor] = {}

    def get(self, key: str) -> Tensor | None:
        """The vectors of ``key``, on the CPU; None when there are none, or they are damaged (with a warning)."""
        if key in self._waiting:
            return self._waiting[key]
        path = self._path(key)
        try:
            vectors = _read(path, key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("%s is damaged (%s); the encoder runs again", path, error)
            return None
        with suppress(OSError):  # a hint for pruning
            os.utime(path)
        return vectors

    def put(self, key: str, vectors: Tensor) -> None:
        """Keep vectors ``[B, H]`` until they are written."""
        self._waiting[key] = vectors.detach().to("cpu", copy=True).contiguous()

    def write(self) -> None:
        """Write what was put; what the disk refuses is said, and not kept."""
        from safetensors.torch import save

        written, waiting = 0, self._waiting
        self._waiting = {}
        try:
            for key, vectors in waiting.items():
                content = save({"vectors": vectors}, {"key": key, "sha256": _checksum(vectors)})
                write_bytes(self._path(key), content)
                written += len(content)
        except StoreError as error:
            log.warning("vectors of a frozen encoder are not kept: %s", error)
        if written:
            _trim(self._store, LIMIT_BYTES)

    def _path(self, key: str) -> Path:
        return self._store / FOLDER / key[:2] / f"{key}.safetensors"


def files(store: Path) -> Iterator[tuple[float, int, Path]]:
    """(last use, bytes, path) of every file."""
    for path in (store / FOLDER).glob("[0-9a-f][0-9a-f]/*.safetensors"):
        with suppress(OSError):  # pruned meanwhile
            status = path.stat()
            yield status.st_mtime, status.st_size, path


def damaged_files(store: Path) -> Iterator[tuple[str, Path, str]]:
    """(key, path, problem) of every file that is not what was written."""
    for _, _, path in sorted(files(store)):
        try:
            _read(path, path.stem)
        except FileNotFoundError:  # pruned meanwhile
            continue
        except (OSError, ValueError) as error:
            yield path.stem, path, str(error)


def _trim(store: Path, limit: int) -> None:
    kept = sorted(files(store))
    held = sum(size for _, size, _ in kept)
    for _, size, path in kept:
        if held <= limit:
            return
        held -= size * discarded(path)


def discarded(path: Path) -> bool:
    """Delete a file; False where this user may not."""
    try:
        path.unlink(missing_ok=True)
        return True
    except OSError:
        return False


def _read(path: Path, key: str) -> Tensor:
    """Raises FileNotFoundError, another OSError, and ValueError for what was not written under this key."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata, vectors = file.metadata() or {}, file.get_tensor("vectors")
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    if metadata.get("key") != key or metadata.get("sha256") != _checksum(vectors):
        raise ValueError("its checksum does not match")
    # Memory of its own, aligned as the encoder's output is: kernels may add up otherwise elsewhere.
    found: Tensor = vectors.clone()
    return found


def _checksum(vectors: Tensor) -> str:
    import torch

    digest = hashlib.sha256(f"{vectors.dtype} {tuple(vectors.shape)};".encode())
    digest.update(vectors.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""Tokens and vectors of a frozen encoder, kept beside the runs: one file for each set of rows or batch.

``<store>/{tokens,features}/<first two digits>/<key>.safetensors``. A file is named by all that determines it, the code
that made it among that, and is written only with the next result, after code and encoder were checked once more. A
damaged file is said in a warning and made again. Nothing is wrong without them. The least recently used vectors go when
all of them exceed ``LIMIT_BYTES``, and with the weights of runs when the store exceeds its budget.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from regft_core.errors import StoreError
from regft_core.io.canonical import sha256_text
from regft_core.io.files import write_bytes
from regft_core.lazy import np

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.encode import Rows, Tokens

    Arrays = Mapping[str, Tensor]

log = logging.getLogger(__name__)

V = TypeVar("V")

FEATURES, TOKENS = "features", "tokens"
#: Of all vectors together; about 700,000 rows of a base-size encoder.
LIMIT_BYTES = 2_000_000_000
_COLUMNS = ("input_ids", "token_type_ids", "special_mask", "segment")


class Cache(Generic[V]):
    """Values under keys in one folder. What is put is found at once, and on disk after ``write``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting: dict[str, V] = {}

    def _arrays(self, value: V) -> Arrays:
        raise NotImplementedError

    def _value(self, arrays: Arrays) -> V:
        raise NotImplementedError

    def _find(self, key: str) -> V | None:
        """Return the value of ``key``; None when there is none, or its file is damaged (with a warning)."""
        if key in self._waiting:
            return self._waiting[key]
        path = self._path(key)
        try:
            value = self._value(_read(path, key))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            log.warning("%s is damaged (%s); it is made again", path, error)
            return None
        with suppress(OSError):  # a hint for pruning
            os.utime(path)
        return value

    def write(self) -> None:
        """Write what was put; what the disk refuses is said, and not kept."""
        from safetensors.torch import save

        waiting, self._waiting = self._waiting, {}
        try:
            for key, value in waiting.items():
                arrays = dict(self._arrays(value))
                write_bytes(self._path(key), save(arrays, {"key": key, "sha256": _checksum(arrays)}))
        except StoreError as error:
            log.warning("%s are not kept: %s", self.folder.name, error)
        if waiting and self.folder.name == FEATURES:
            _trim(self.folder.parent, LIMIT_BYTES)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"


class FeatureFiles(Cache["Tensor"]):
    """The kept vectors ``[B, H]`` of one run store."""

    def __init__(self, store: Path) -> None:
        super().__init__(store / FEATURES)

    def get(self, key: str) -> Tensor | None:
        """Return the vectors of ``key``, on the CPU; None when there are none, or they are damaged."""
        return self._find(key)

    def put(self, key: str, vectors: Tensor) -> None:
        """Keep vectors until they are written."""
        self._waiting[key] = vectors.detach().to("cpu", copy=True).contiguous()

    def _arrays(self, value: Tensor) -> Arrays:
        return {"vectors": value}

    def _value(self, arrays: Arrays) -> Tensor:
        # Memory of its own, aligned as the encoder's output is: kernels may add up otherwise elsewhere.
        return arrays["vectors"].clone()


class TokenFiles(Cache["Tokens"]):
    """The kept tokens of one tokenizer.

    Args:
        store: the run store's folder.
        about: what determines tokens beside texts and settings: hashes of the tokenizer and of the loaded code.
    """

    def __init__(self, store: Path, about: str) -> None:
        super().__init__(store / TOKENS)
        self._about = about

    def get(self, key: str, count: int) -> Tokens | None:
        """Return the tokens of ``count`` examples; None when there are none, or they are damaged."""
        tokens = self._find(sha256_text(f"{self._about} {key}"))
        if tokens is not None and len(tokens["input_ids"] if tokens["windows"] is None else tokens["windows"]) != count:
            return None
        return tokens

    def put(self, key: str, tokens: Tokens) -> None:
        """Keep tokens until they are written."""
        self._waiting[sha256_text(f"{self._about} {key}")] = tokens

    def _arrays(self, value: Tokens) -> Arrays:
        import torch

        arrays: dict[str, Any] = {"lengths": [len(row) for row in value["input_ids"]]}
        for name in _COLUMNS:
            rows: Rows | None = value[name]  # type: ignore[literal-required]
            if rows is not None:
                arrays[name] = [token for row in rows for token in row]
        if value["windows"] is not None:
            arrays["windows"] = value["windows"]
        return {name: torch.from_numpy(np.asarray(numbers, dtype=np.int32)) for name, numbers in arrays.items()}

    def _value(self, arrays: Arrays) -> Tokens:
        from regft_core.data.encode import Tokens

        ends = np.cumsum(arrays["lengths"].numpy())[:-1]

        def rows(name: str) -> Rows:
            return [row.tolist() for row in np.split(arrays[name].numpy(), ends)] if len(arrays["lengths"]) else []

        return Tokens(
            input_ids=rows("input_ids"),
            token_type_ids=rows("token_type_ids") if "token_type_ids" in arrays else None,
            special_mask=rows("special_mask"),
            segment=rows("segment"),
            windows=arrays["windows"].tolist() if "windows" in arrays else None,
        )


def feature_files(store: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield last use, bytes and path of every file of vectors."""
    for path in (store / FEATURES).glob("[0-9a-f][0-9a-f]/*.safetensors"):
        with suppress(OSError):  # pruned meanwhile
            status = path.stat()
            yield status.st_mtime, status.st_size, path


def damaged_features(store: Path) -> Iterator[tuple[Path, str]]:
    """Yield path and problem of every file of vectors that is not what was written."""
    for _, _, path in sorted(feature_files(store)):
        try:
            _read(path, path.stem)
        except FileNotFoundError:  # pruned meanwhile
            continue
        except (OSError, ValueError) as error:
            yield path, str(error)


def _trim(store: Path, limit: int) -> None:
    files = sorted(feature_files(store))
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= limit:
            return
        with suppress(OSError):
            path.unlink(missing_ok=True)
            total -= size


def _read(path: Path, key: str) -> Arrays:
    """Return the arrays of a file; raises ValueError for what was not written under this key."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata, arrays = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    if metadata.get("key") != key or metadata.get("sha256") != _checksum(arrays):
        raise ValueError("its checksum does not match")
    return arrays


def _checksum(arrays: Arrays) -> str:
    import torch

    digest = hashlib.sha256()
    for _, array in sorted(arrays.items()):
        digest.update(f"{array.dtype} {tuple(array.shape)};".encode())
        digest.update(array.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()

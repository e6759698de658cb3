"""Vectors of a frozen encoder, kept beside the runs; tokens, kept for the runs of a process.

``<store>/features/<first two digits>/<key>.safetensors`` has the vectors of one batch. A file is named by all that
determines it, the code that made it among that, and is written only with the next result, after code and encoder were
checked once more. A damaged file is said in a warning and computed again. The least recently used files go when all of
them exceed ``LIMIT_BYTES``, and with the weights of runs when the store exceeds its budget.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from regft_core.disk.tensors import read_checked, write_checked
from regft_core.errors import StoreError

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.encode import Tokens

log = logging.getLogger(__name__)

FOLDER = "features"
#: Of all files together; about 700,000 rows of a base-size encoder.
LIMIT_BYTES = 2_000_000_000
#: Of one tokenizer in a process; about 150 MB.
LIMIT_TOKENS = 2_000_000


class TokenMemory:
    """The tokens of one tokenizer in this process: the sets that runs are evaluated on are tokenised once."""

    def __init__(self) -> None:
        self._tokens: dict[str, Tokens] = {}
        self._count = 0

    def get(self, key: str) -> Tokens | None:
        """Return the tokens of ``key``; None when there are none."""
        return self._tokens.get(key)

    def put(self, key: str, tokens: Tokens) -> None:
        """Keep tokens; beyond ``LIMIT_TOKENS`` all that were kept go."""
        count = sum(map(len, tokens["input_ids"]))
        if self._count + count > LIMIT_TOKENS:
            self._tokens, self._count = {}, 0
        self._tokens[key] = tokens
        self._count += count


@lru_cache(maxsize=4)
def token_memory(tokenizer_sha256: str) -> TokenMemory:
    """Return the tokens of the tokenizer with these bytes."""
    return TokenMemory()


class FeatureFiles:
    """The kept vectors of one run store. What is put is found at once, and on disk after ``write``."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._waiting: dict[str, Tensor] = {}

    def get(self, key: str) -> Tensor | None:
        """Return the vectors of ``key``, on the CPU; None when there are none, or they are damaged (with a warning)."""
        if key in self._waiting:
            return self._waiting[key]
        path = self._path(key)
        try:
            tensors, texts = read_checked(path)
            if texts["key"] != key:
                raise ValueError("it has the vectors of another key")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("%s is damaged (%s); the encoder runs again", path, error)
            return None
        with suppress(OSError):  # a hint for pruning
            os.utime(path)
        return tensors["vectors"]

    def put(self, key: str, vectors: Tensor) -> None:
        """Keep vectors ``[B, H]`` until they are written."""
        self._waiting[key] = vectors.detach().to("cpu", copy=True).contiguous()

    def write(self) -> None:
        """Write what was put; what the disk refuses is said, and not kept."""
        waiting, self._waiting = self._waiting, {}
        try:
            for key, vectors in waiting.items():
                write_checked(self._path(key), {"vectors": vectors}, {"key": key})
        except StoreError as error:
            log.warning("vectors of a frozen encoder are not kept: %s", error)
        if waiting:
            _trim(self._store, LIMIT_BYTES)

    def _path(self, key: str) -> Path:
        return self._store / FOLDER / key[:2] / f"{key}.safetensors"


def feature_files(store: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield last use, bytes and path of every file of vectors."""
    for path in (store / FOLDER).glob("[0-9a-f][0-9a-f]/*.safetensors"):
        with suppress(OSError):  # pruned meanwhile
            status = path.stat()
            yield status.st_mtime, status.st_size, path


def damaged_features(store: Path) -> Iterator[tuple[Path, str]]:
    """Yield path and problem of every file of vectors that is not what was written."""
    for _, _, path in sorted(feature_files(store)):
        if problem := damage_of(path, path.stem):
            yield path, problem


def damage_of(path: Path, key: str | None = None) -> str:
    """Return what is wrong with a file of checked tensors (and of this key), in words; empty where it is gone."""
    try:
        texts = read_checked(path)[1]
        return "" if key in (None, texts.get("key")) else "it has the vectors of another key"
    except FileNotFoundError:  # pruned meanwhile
        return ""
    except (OSError, ValueError) as error:
        return str(error)


def _trim(store: Path, limit: int) -> None:
    files = sorted(feature_files(store))
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= limit:
            return
        with suppress(OSError):
            path.unlink(missing_ok=True)
            total -= size

"""Tokens kept beside the runs: one file for each set of texts, named by all that determines it.

``<store>/tokens/<first two digits>/<key>.safetensors``. As with runs, a file is named by the code that made it, which
is the code that this process has loaded, and written once that code was checked again. A damaged file is said in a
warning and made again. Nothing is wrong without them.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.errors import StoreError
from regft_core.io.canonical import sha256_text
from regft_core.io.files import write_bytes
from regft_core.lazy import np

if TYPE_CHECKING:
    from regft_core.data.encode import Rows, Tokens

log = logging.getLogger(__name__)

_COLUMNS = ("input_ids", "token_type_ids", "special_mask", "segment")


class TokenFiles:
    """The kept tokens of one tokenizer. What is put is written by ``write``, once its code was checked again.

    Args:
        folder: where the files are.
        about: what determines tokens beside texts and settings: hashes of the tokenizer and of the loaded code.
    """

    def __init__(self, folder: Path, about: str) -> None:
        self._folder, self._about = folder, about
        self._waiting: dict[str, Tokens] = {}

    def get(self, key: str, count: int) -> Tokens | None:
        """The tokens of ``count`` examples; None when there are none, or they are damaged (with a warning)."""
        key = self._named(key)
        if key in self._waiting:
            return self._waiting[key]
        path = self._path(key)
        return _read(path, key, count) if path.is_file() else None

    def put(self, key: str, tokens: Tokens) -> None:
        """Keep tokens until they are written."""
        self._waiting[self._named(key)] = tokens

    def write(self) -> None:
        """Write what was put; what the disk refuses is said, and not kept."""
        from safetensors.numpy import save

        waiting, self._waiting = self._waiting, {}
        try:
            for key, tokens in waiting.items():
                arrays = _arrays(tokens)
                write_bytes(self._path(key), save(arrays, {"key": key, "sha256": _checksum(arrays)}))
        except StoreError as error:
            log.warning("tokens are not kept: %s", error)

    def _named(self, key: str) -> str:
        return sha256_text(f"{self._about} {key}")

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.safetensors"


def _arrays(tokens: Tokens) -> dict[str, Any]:
    arrays = {"lengths": np.asarray([len(row) for row in tokens["input_ids"]], dtype=np.int32)}
    for name in _COLUMNS:
        rows: Rows | None = tokens[name]  # type: ignore[literal-required]
        if rows is not None:
            arrays[name] = np.asarray([token for row in rows for token in row], dtype=np.int32)
    if tokens["windows"] is not None:
        arrays["windows"] = np.asarray(tokens["windows"], dtype=np.int32)
    return arrays


def _read(path: Path, key: str, count: int) -> Tokens | None:
    from safetensors import SafetensorError, safe_open

    from regft_core.data.encode import Tokens

    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.get("key") != key or metadata.get("sha256") != _checksum(arrays):
            raise ValueError("its checksum does not match")
        windows = arrays["windows"].tolist() if "windows" in arrays else None
        if len(arrays["lengths"] if windows is None else windows) != count:
            raise ValueError("it holds another number of rows")
        ends = np.cumsum(arrays["lengths"])[:-1]

        def rows(name: str) -> Rows:
            return [row.tolist() for row in np.split(arrays[name], ends)] if count else []

        return Tokens(
            input_ids=rows("input_ids"),
            token_type_ids=rows("token_type_ids") if "token_type_ids" in arrays else None,
            special_mask=rows("special_mask"),
            segment=rows("segment"),
            windows=windows,
        )
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        log.warning("token cache %s is damaged (%s); tokenising again", path, error)
        return None


def _checksum(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name}:{arrays[name].dtype}:{arrays[name].shape};".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()

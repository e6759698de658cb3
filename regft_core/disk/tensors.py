"""Named tensors on disk: safetensors files, written durably and read only when they are intact."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from regft_core.disk.canonical import canonical_json
from regft_core.disk.files import explained, fsync, replacing
from regft_core.errors import StoreError
from regft_core.lazy import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write ``tensors`` to ``path``, flushed, shared memory in full. TypeError for what is no dense tensor."""
    with explained(path):
        _save(path, _plain(tensors), metadata)


def write_checked(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors and texts atomically, with a hash of all of them, for ``read_checked``; raises alike."""
    plain = _plain(tensors)
    with replacing(path) as temporary:
        _save(temporary, plain, {**metadata, "sha256": _digest(plain, metadata)})


def read_checked(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, on the CPU, and texts of a ``write_checked`` file. Raises OSError, ValueError for damage."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = dict(file.metadata() or {})
            # Memory of their own, aligned as computed tensors are: kernels may add up otherwise elsewhere.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    if metadata.pop("sha256", "") != _digest(tensors, metadata):
        raise ValueError("its checksum does not match")
    return tensors, metadata


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file whose hash was compared, on the CPU; raises ``StoreError`` for no safetensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(path))
    except (OSError, SafetensorError) as error:
        hint = "delete the run and repeat the stage: it is trained again"
        raise StoreError("not-safetensors", f"{path}: cannot be read as safetensors: {error}\n    -> {hint}") from error


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors on the CPU, none of which shares memory with another."""
    import torch

    plain: dict[str, Tensor] = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise TypeError(f"{name!r} is not a dense tensor; numbers and texts belong in the JSON part")
        plain[name] = tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)
    return plain


def _save(path: Path, plain: dict[str, Tensor], metadata: dict[str, str] | None) -> None:
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode  # of the umask: safetensors renames a temporary file, which only its owner may read
    save_file(plain, str(path), metadata=metadata)
    path.chmod(mode)
    fsync(path)


def _digest(plain: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    import torch

    digest = hashlib.sha256(canonical_json(metadata).encode())
    for name in sorted(plain):
        digest.update(f"{name} {plain[name].dtype} {tuple(plain[name].shape)};".encode())
        digest.update(plain[name].flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()

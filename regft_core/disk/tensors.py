"""Named tensors on disk: safetensors files, written durably and read only when they are intact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from regft_core.disk.files import explained, fsync
from regft_core.errors import StoreError

if TYPE_CHECKING:
    from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write ``tensors`` (any shapes, zero-dimensional and empty ones too) to ``path`` and flush it.

    Tensors are brought to the CPU; those that share memory (tied weights, views) are stored
    each in full, so that a file never depends on how memory was laid out. The same tensors
    give the same bytes. Raises ``TypeError`` for what is not a dense tensor, ``StoreError``
    when the file cannot be written.
    """
    import torch
    from safetensors.torch import save_file

    seen: set[int] = set()
    plain: dict[str, Tensor] = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise TypeError(f"{path.name}: {name!r} is not a dense tensor; numbers and texts belong in the JSON part")
        tensor = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.numel() * tensor.element_size():
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        seen.add(tensor.untyped_storage().data_ptr())
        plain[name] = tensor
    with explained(path):
        path.touch()
        mode = path.stat().st_mode  # of the umask: safetensors renames a temporary file, which only its owner may read
        save_file(plain, str(path), metadata=metadata)
        path.chmod(mode)
        fsync(path)


def read_tensors(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """Return the tensors of a file on ``device``; raises ``StoreError`` when it is not safetensors.

    The caller has compared the file's hash before: this only parses.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(path), device=device)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            "not-safetensors",
            f"{path}: cannot be read as safetensors: {error}\n"
            "    -> delete the run and repeat the stage: it is trained again",
        ) from error

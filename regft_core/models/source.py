"""Where a pretrained encoder comes from: a pinned alias, a local directory, or the hub at a revision.

Nothing here imports torch, so validation and fingerprints stay cheap. The content hashes are
part of every run's key: two directories with the same bytes are the same model.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.config.schema import EncoderConfig
from regft_core.errors import ModelError
from regft_core.models.aliases import ALIASES, fetched_directory
from regft_core.models.architectures import Architecture, architecture_of

TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "spm.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
#: At least one of these must be there: the others only hold settings.
VOCABULARY_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model")

HUB_PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.model"]
HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")

_hashes: dict[tuple[str, int, int], str] = {}


@dataclass(frozen=True)
class ModelSource:
    """A pretrained encoder on this disk.

    ``content_sha256`` covers config.json and the safetensors weights, ``tokenizer_sha256`` the
    tokenizer's files; both are independent of where the directory lies. ``revision`` is the hub
    commit, None for an alias or a local directory.
    """

    path: Path
    name: str
    revision: str | None
    content_sha256: str
    tokenizer_sha256: str


def resolve_model(encoder: EncoderConfig, root: Path) -> ModelSource:
    """Find the encoder that ``params.yaml`` names; hub ids may be downloaded.

    Args:
        encoder: ``model`` section; ``name`` is an alias, a directory (relative to ``root``) or a hub id.
        root: project root.

    Raises:
        ModelError: not found, incomplete, in an unsafe format, of an unsupported family, or not the pinned bytes.
    """
    directory = (root / Path(encoder.name).expanduser()).resolve()
    if encoder.name in ALIASES or directory.is_dir():
        if encoder.revision:
            raise ModelError(
                f"model.revision: '{encoder.revision}' was given, but '{encoder.name}' is "
                f"{'an alias with pinned weights' if encoder.name in ALIASES else f'the directory {directory}'}, "
                "which has no revisions; remove the key"
            )
        return _from_alias(encoder, root) if encoder.name in ALIASES else _from_directory(directory, encoder, None)
    if encoder.name.startswith((".", "/", "~")) or not HUB_ID.match(encoder.name):
        raise ModelError(
            f"model.name: '{encoder.name}' is not a directory ({directory} does not exist) and cannot be a hub id. "
            f"Give an alias ({', '.join(ALIASES)}), a directory relative to the project root, or a hub id."
        )
    return _from_hub(encoder)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file; remembered in this process until its size or modification time changes."""
    status = path.stat()
    key = (str(path), status.st_size, status.st_mtime_ns)
    if key not in _hashes:
        with path.open("rb") as stream:
            _hashes[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _hashes[key]


def _from_alias(encoder: EncoderConfig, root: Path) -> ModelSource:
    name, alias = encoder.name, ALIASES[encoder.name]
    if alias.package is None:
        path = fetched_directory(name, root)
        missing = "" if path.is_dir() else f"there is no {path}"
    else:
        spec = importlib.util.find_spec(alias.package)
        locations = list(spec.submodule_search_locations or []) if spec else []
        path = Path(*locations[:1]) / alias.folder
        missing = "" if locations else f"the Python package '{alias.package.replace('_', '-')}' is not installed"
    if missing:
        raise ModelError(
            f"model.name: '{name}' is not on this machine: {missing}. Get it ({alias.title}): {alias.advice}"
        )
    for file, expected in alias.sha256.items():
        if not (path / file).is_file():
            raise ModelError(f"model '{name}': {path / file} is missing; get it again: {alias.advice}")
        found = file_sha256(path / file)
        if found != expected:
            raise ModelError(
                f"model '{name}': {path / file} has SHA-256 {found}, expected {expected}. The file is damaged or of "
                f"another version; get it again: {alias.advice}. To use these weights on purpose, give the directory "
                "itself as model.name."
            )
    return _from_directory(path, encoder, None)


def _from_hub(encoder: EncoderConfig) -> ModelSource:
    if not encoder.revision:
        raise ModelError(
            f"model.revision is missing: '{encoder.name}' is no directory here, so it is a hub id, and a hub id "
            "needs the commit to use (40 hex digits, from the 'Files' page of the model)."
        )
    from huggingface_hub import errors, snapshot_download

    what = f"model '{encoder.name}' at revision '{encoder.revision}'"
    try:
        path = snapshot_download(
            encoder.name, revision=encoder.revision, allow_patterns=HUB_PATTERNS, ignore_patterns=["*/*"]
        )
    except errors.GatedRepoError as error:
        raise ModelError(f"{what}: access is gated; accept its terms on the hub and log in (hf auth login)") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"{what}: no such repository on the hub, or it is private; check model.name") from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"{what}: the hub has no such revision; check model.revision") from error
    except Exception as error:  # connection errors come as many types, all with the same advice
        raise ModelError(
            f"{what}: cannot reach the hub ({type(error).__name__}) and the model is not in its local cache. "
            "Give a local directory as model.name, or 'minilm', which needs no network."
        ) from error
    # The snapshot's directory carries the commit's name, also when a branch was asked for.
    return _from_directory(Path(path), encoder, Path(path).name)


def _from_directory(path: Path, encoder: EncoderConfig, revision: str | None) -> ModelSource:
    name = encoder.name
    config = _read_json(path / "config.json", name)
    architecture = architecture_of(config.get("model_type"), where=f"model '{name}' ({path / 'config.json'})")
    positions = _positions(config, architecture)
    if positions is not None and encoder.max_length > positions:
        raise ModelError(
            f"model.max_length: {encoder.max_length} tokens, but '{name}' has position embeddings for {positions} only"
        )
    weights = _weight_files(path, name)
    tokenizer = [path / file for file in TOKENIZER_FILES if (path / file).is_file()]
    if not any(file.name in VOCABULARY_FILES for file in tokenizer):
        raise ModelError(
            f"model '{name}': no tokenizer in {path} (looked for {', '.join(VOCABULARY_FILES)}). "
            "Save it beside the weights: tokenizer.save_pretrained(directory)"
        )
    return ModelSource(path, name, revision, _digest([path / "config.json", *weights]), _digest(tokenizer))


def _positions(config: dict[str, Any], architecture: Architecture) -> int | None:
    """Return the longest input in tokens; None where positions are relative or the file does not say."""
    limit = config.get("max_position_embeddings")
    relative = architecture.positions == "relative" or config.get("position_biased_input") is False
    if not isinstance(limit, int) or relative:
        return None
    return limit - config.get("pad_token_id", 1) - 1 if architecture.positions == "after_padding" else limit


def _weight_files(path: Path, name: str) -> list[Path]:
    single, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        shards = sorted(set(_read_json(index, name).get("weight_map", {}).values()))
        for shard in shards:
            if Path(shard).name != shard or not (path / shard).is_file():
                raise ModelError(f"model '{name}': {index} names the shard '{shard}', which is not in {path}")
        if shards:
            return [index, *(path / shard for shard in shards)]
    if list(path.glob("*.bin")) or list(path.glob("*.pt")) or list(path.glob("*.ckpt")):
        raise ModelError(
            f"model '{name}': {path} has its weights only in a pickle format (.bin, .pt), which can run code when "
            "it is opened. Convert it once where you trust it: AutoModel.from_pretrained(old).save_pretrained(new) "
            "writes model.safetensors; use AutoModelForMaskedLM instead if the masked-LM head is needed."
        )
    raise ModelError(f"model '{name}': no weights in {path}; expected model.safetensors (or shards with their index)")


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"model '{name}': {path} is missing; a model directory needs config.json") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{name}': {path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"model '{name}': {path} must hold a JSON object")
    return content


def _digest(paths: list[Path]) -> str:
    lines = sorted(f"{path.name} {file_sha256(path)}\n" for path in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()

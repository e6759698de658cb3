"""Where a pretrained encoder comes from: a pinned alias, a local directory, or the hub at a revision. No torch here."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.disk.paths import content_sha256, expand, what_is
from regft_core.errors import InputChanged, ModelError
from regft_core.models.architectures import architecture_of, no_pooling
from regft_core.models.checkpoint_files import (
    TOKENIZER_FILES,
    VOCABULARY_FILES,
    check_config,
    json_object,
    position_count,
    read_model_json,
    refuse_adapters,
    refuse_paths,
    tokenizer_files,
    weight_files,
)
from regft_core.models.fetch import ALIASES, fetched_directory, hub_encoder, present_encoder
from regft_core.schema.training import EncoderConfig

#: Weights in the layers of an encoder (embeddings take no matrix products), by the word for the size in its name.
WEIGHTS = {
    **{"xxlarge": 1.36e9, "xlarge": 6.8e8, "large": 3.02e8, "small": 9.5e6, "base": 8.5e7},
    **{"minilm": 1.06e7, "mpnet": 8.5e7, "chinese-bert-wwm": 8.5e7},
}
#: The same by its configuration: what families call the numbers of layers, of hidden units and of inner ones.
_SIZES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "encoder_layers"),
    "width": ("hidden_size", "d_model", "dim"),
    "inner": ("intermediate_size", "d_inner", "hidden_dim", "encoder_ffn_dim"),
}


@dataclass(frozen=True)
class ModelSource:
    """A pretrained encoder on this disk, which is read by ``opened`` only.

    ``content_sha256`` covers config.json and the safetensors weights, ``tokenizer_sha256`` the tokenizer's files;
    ``files`` are names and hashes of all. ``revision`` is the hub commit, None elsewhere.
    """

    path: Path
    name: str
    revision: str | None
    content_sha256: str
    tokenizer_sha256: str
    files: tuple[tuple[str, str], ...]

    def opened(self) -> Path:
        """Return the directory, to be read now. InputChanged where a file is not what the hashes say, ModelError."""
        known, now = dict(self.files), _read_files(self.path, self.name)
        if changed := sorted(name for name in known.keys() | now.keys() if known.get(name) != now.get(name)):
            where = f"encoder '{self.name}' ({self.path})"
            raise InputChanged("input-changed", f"{where}: {', '.join(changed)} was replaced")
        return self.path

    def config(self) -> dict[str, Any]:
        """The content of config.json; raises ModelError when it cannot be read."""
        return read_model_json(self.path / "config.json", self.name)


def resolve_model(encoder: EncoderConfig, root: Path) -> ModelSource:
    """Find the encoder that ``params.yaml`` names, or download it from the hub at its revision. Raises ModelError."""
    name, commit = encoder.name, None
    path = _local_path(name, root)
    if name in ALIASES:
        _check_pinned(path, name)
    elif what_is(path) == "a directory":
        path = path.resolve()
    elif encoder.revision:
        path, commit = hub_encoder(name, encoder.revision, root)
    else:
        message = f"model.name: '{name}' is no alias and no directory, and a hub id needs a revision"
        hint = f"give an alias ({', '.join(ALIASES)}), a directory, or add revision: (40 hex digits) under model"
        raise ModelError("model-missing", f"{message}\n    -> {hint}")
    for key, problem in _problems(path, encoder):
        if key != "pooling":  # `regft fit` opens an encoder before it chooses one
            raise problem
    files = _read_files(path, name)
    tokenizer = {file: sha256 for file, sha256 in files.items() if file in TOKENIZER_FILES}
    content = {file: sha256 for file, sha256 in files.items() if file not in TOKENIZER_FILES}
    return ModelSource(path, name, commit, _digest(content), _digest(tokenizer), tuple(sorted(files.items())))


def encoder_present(encoder: EncoderConfig, root: Path) -> bool:
    """Whether the encoder is complete on this disk; nothing is downloaded."""
    if encoder.name in ALIASES:
        return not encoder_problems(encoder, root)
    if what_is(expand(root, encoder.name)) == "a directory":
        return True
    path = present_encoder(encoder.name, encoder.revision or "main", root)
    # A download that was cut off leaves some of the files.
    return path is not None and any((path / file).is_file() for file in VOCABULARY_FILES)


def encoder_problems(encoder: EncoderConfig, root: Path) -> list[tuple[str, str, str]]:
    """Return errors in an alias or a local directory as (key below ``model``, code, message); reads no weights."""
    try:
        found = list(_problems(_local_path(encoder.name, root).resolve(), encoder))
    except ModelError as error:
        found = [("name", error)]
    except ValueError as error:
        return [("name", "bad-path", str(error))]
    return [(key, error.code, error.text.removeprefix(f"model.{key}: ")) for key, error in found]


def _problems(path: Path, encoder: EncoderConfig) -> Iterator[tuple[str, ModelError]]:
    """Yield what is wrong with an encoder's folder, with the key below ``model``. Raises ModelError."""
    refuse_adapters(path)
    refuse_paths(path)
    config = read_model_json(path / "config.json", encoder.name)
    family = check_config(config, path, encoder.name)
    positions = position_count(config, family)
    if positions is not None and encoder.max_length > positions:
        message = f"{encoder.max_length} tokens, but '{encoder.name}' has position embeddings for {positions} only"
        yield "max_length", ModelError("input-too-long", f"model.max_length: {message}; give at most that")
    if problem := no_pooling(family, encoder.pooling):
        yield "pooling", ModelError("pooling-not-possible", problem)
    for files in (weight_files, tokenizer_files):
        try:
            files(path, encoder.name)
        except ModelError as error:
            yield "name", error


def _local_path(name: str, root: Path) -> Path:
    """The directory of an alias (in a package, found without importing it, or where it was fetched to), or ``name``."""
    if name not in ALIASES:
        return expand(root, name)
    alias = ALIASES[name]
    if alias.package is None:
        path = fetched_directory(name, root)
        missing = "" if path.is_dir() else f"there is no {path}"
    else:
        spec = importlib.util.find_spec(alias.package)
        locations = list(spec.submodule_search_locations or []) if spec else []
        path = Path(*locations[:1]) / alias.folder
        missing = "" if locations else f"the Python package '{alias.package.replace('_', '-')}' is not installed"
    if missing:
        message = f"model.name: '{name}' is not on this machine: {missing}"
        raise ModelError("model-not-installed", f"{message}. Get it ({alias.title}): {alias.advice}")
    return path


def _check_pinned(path: Path, name: str) -> None:
    """Raise ModelError where files of an alias are missing or have other bytes."""
    advice = ALIASES[name].advice
    for file, expected in ALIASES[name].sha256.items():
        if not (path / file).is_file():
            raise ModelError("file-missing", f"model '{name}': {path / file} is missing; get it again: {advice}")
        if (found := content_sha256(path / file)) != expected:
            message = f"model '{name}': {path / file} has SHA-256 {found}, expected {expected}"
            hint = f"get it again ({advice}), or give the directory as model.name to use these weights on purpose"
            raise ModelError("wrong-checksum", f"{message}\n    -> {hint}")


def _read_files(path: Path, name: str) -> dict[str, str]:
    """Name -> SHA-256 of every file that the encoder and its tokenizer are loaded from."""
    refuse_adapters(path)
    files = [path / "config.json", *weight_files(path, name), *tokenizer_files(path, name)]
    try:
        return {file.name: content_sha256(file) for file in files}
    except OSError as error:
        message = f"model '{name}': {error.filename} cannot be read: {error.strerror}"
        raise ModelError("cannot-read", f"{message}\n    -> check the file's permissions") from error


def layers_of(encoder: EncoderConfig, root: Path) -> int:
    """How many layers an alias or a local directory has; raises ModelError where its files do not say."""
    file = _local_path(encoder.name, root) / "config.json"
    config = read_model_json(file, encoder.name)
    if (layers := _size(config, "layers")) is not None:
        return layers
    message = f"model '{encoder.name}' ({file}): no number of layers"
    raise ModelError("bad-model-config", f"{message}\n    -> write num_hidden_layers into that file")


def encoder_weights(name: str, root: Path) -> float | None:
    """Return the weights in the encoder's layers: by its configuration, else by its name; None when neither tells."""
    if name not in ALIASES and (config := json_object(expand(root, name) / "config.json")) is not None:
        layers, width, inner = (_size(config, what) for what in _SIZES)
        if layers and width and inner:
            decoder = config.get("decoder_layers", 0) * (8 * width**2 + 2 * width * inner)  # which attends twice
            return float(layers * (4 * width**2 + 2 * width * inner) + decoder)
    return next((count for word, count in WEIGHTS.items() if word in name.lower()), None)


def _size(config: Mapping[str, Any], what: str) -> int | None:
    """The size that a configuration gives under one of the names ``_SIZES[what]``."""
    return next((found for key in _SIZES[what] if isinstance(found := config.get(key), int)), None)


def longest_input(source: ModelSource, encoder: EncoderConfig) -> int | None:
    """The most tokens that ``model.max_length`` may be for this encoder; None when only the schema limits it."""
    config = source.config()
    return position_count(config, architecture_of(config.get("model_type"), where=f"model '{encoder.name}'"))


def _digest(files: Mapping[str, str]) -> str:
    lines = sorted(f"{name} {sha256}\n" for name, sha256 in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()

"""Files of a model folder: which of them are read, and what the JSON ones of a folder from elsewhere may not say.

Weights are safetensors and tokenizers JSON, so reading them runs nothing. But a configuration can name other files
(shards, vocabularies, an adapter's encoder), code of its own (``auto_map``), or a repository whose kernel transformers
would fetch and run (``attn_implementation``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regft_core.disk.reading import read_json
from regft_core.errors import ModelError, StoreError, text_of
from regft_core.models.architectures import Architecture, architecture_of

#: At least one of these must be there: the other files of a tokenizer only hold settings.
VOCABULARY_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model")
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    *("added_tokens.json", "merges.txt", "special_tokens_map.json", "tokenizer_config.json"),
)
CONFIGS = ("config.json", "tokenizer_config.json")
#: Keys of a configuration that say what computes; transformers fetches what they name. Our choice replaces them.
_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
#: Keys that name files, beside those that end in ``_file``.
_NAMING = ("transformers_weights", "fast_tokenizer_files")
#: What peft writes: where it is installed, transformers puts such weights on top of the encoder's.
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")


def refuse_paths(directory: Path) -> None:
    """Raise ModelError where a JSON file of ``directory`` names a file that is not directly in it."""
    named: list[tuple[Path, str, Any]] = []
    for path in sorted(directory.glob("*.index.json")):
        shards = (json_object(path) or {}).get("weight_map")
        named += [(path, "weight_map", shard) for shard in (shards.values() if isinstance(shards, dict) else ())]
    for path in (directory / name for name in CONFIGS):
        for key, value in (json_object(path) or {}).items():
            if key.endswith("_file") or key in _NAMING:
                named += [(path, key, file) for file in (value if isinstance(value, list) else [value])]
    for path, key, name in named:
        inside = isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\\", "\0"} & {*name}
        if name is not None and not inside:
            message = f"{path}: {key} names {json.dumps(name)[:80]}, which is not a file of this folder"
            raise ModelError("leads-elsewhere", f"{message}\n    -> do not use this model unless you know who made it")


def refuse_outside(directory: Path) -> None:
    """Raise ModelError where reading ``directory`` leads out of it: as ``refuse_paths``, and links, and adapters."""
    refuse_paths(directory)
    refuse_adapters(directory)
    inside = directory.resolve()
    allowed = (inside, inside.parents[1] / "blobs") if inside.parent.name == "snapshots" else (inside,)
    for path in filter(Path.is_symlink, directory.rglob("*")):
        try:
            leads_out = not any(path.resolve().is_relative_to(one) for one in allowed)
        except (OSError, RuntimeError):  # to itself
            leads_out = True
        if leads_out:
            message = f"{path} is a link that leads out of the folder, or to itself"
            raise ModelError("leads-elsewhere", f"{message}\n    -> put the file itself there, if you trust it")


def refuse_adapters(directory: Path) -> None:
    """Raise ModelError for an adapter: its encoder would be looked up elsewhere, or its weights left out."""
    if found := [file for file in ADAPTER_FILES if (directory / file).exists()]:
        merge = "PeftModel.from_pretrained(encoder, directory).merge_and_unload().save_pretrained(new)"
        hint = f"merge it into the weights once, with peft: {merge}; save the tokenizer there too, and give that folder"
        raise ModelError("adapter-in-encoder", f"{directory} has an adapter ({', '.join(found)})\n    -> {hint}")


def ignored(directory: Path) -> list[str]:
    """Return what the configurations ask for and do not get, as sentences."""
    found = []
    for name in CONFIGS:
        content = json_object(directory / name) or {}
        if "auto_map" in content and content.get("model_type") != "regft_classifier":  # ours is of this package
            found.append(f"{directory / name}: names code of its own (auto_map), which is not run")
        encoder = content.get("encoder")  # of our own exports
        for key, value in [*content.items(), *(encoder.items() if isinstance(encoder, dict) else ())]:
            if is_implementation(key) and value is not None:
                found.append(f"{directory / name}: {key} is {json.dumps(value)[:60]}, which is ignored")
    return found


def is_implementation(key: str) -> bool:
    """Whether a key of a configuration says what computes."""
    return key.strip("_").removesuffix("_internal") in _IMPLEMENTATIONS


def plain_config(directory: Path) -> Any:
    """The configuration of ``directory`` without what ``ignored`` lists; raises whatever transformers raises."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    for key in _IMPLEMENTATIONS:
        if getattr(config, f"_{key}", None) is not None:
            setattr(config, f"_{key}", None)
    return config


def json_object(path: Path) -> dict[str, Any] | None:
    """Return what a file holds, None where it is not there. Raises ModelError for anything but a JSON object."""
    try:
        return read_json(path, dict)
    except StoreError as error:
        if error.code == "file-missing":
            return None
        reason = text_of(error).splitlines()[0]
        raise ModelError(error.code, f"{reason}\n    -> export or fetch the model again") from error


def weight_files(path: Path, name: str) -> list[Path]:
    """The safetensors files, after their index if there is one; raises ModelError where they are missing or pickled."""
    single, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        weight_map = read_model_json(index, name).get("weight_map")
        shards = sorted({str(file) for file in weight_map.values()}) if isinstance(weight_map, dict) else []
        for shard in shards:
            if Path(shard).name != shard or not (path / shard).is_file():
                message = f"model '{name}': {index} names the shard '{shard}', which is not in {path}"
                raise ModelError("weights-missing", f"{message}\n    -> copy the missing shard there")
        if shards:
            return [index, *(path / shard for shard in shards)]
    if any(list(path.glob(pattern)) for pattern in ("*.bin", "*.pt", "*.ckpt")):
        message = f"model '{name}': {path} has its weights in a pickle format only, which can run code when it is read"
        hint = "convert it once where you trust it: AutoModelForMaskedLM.from_pretrained(old).save_pretrained(new)"
        raise ModelError("pickled-weights", f"{message}\n    -> {hint}")
    message = f"model '{name}': no model.safetensors in {path}, and no index of shards"
    raise ModelError("weights-missing", f"{message}\n    -> save them there: model.save_pretrained(directory)")


def tokenizer_files(path: Path, name: str) -> list[Path]:
    """The tokenizer's files that are there; raises ModelError where none holds a vocabulary."""
    files = [path / file for file in TOKENIZER_FILES if (path / file).is_file()]
    if not any(file.name in VOCABULARY_FILES for file in files):
        message = f"model '{name}': no tokenizer in {path} (none of {', '.join(VOCABULARY_FILES)})"
        hint = "save it beside the weights: tokenizer.save_pretrained(directory)"
        raise ModelError("tokenizer-missing", f"{message}\n    -> {hint}")
    return files


def read_model_json(path: Path, name: str) -> dict[str, Any]:
    """Return a JSON object of the encoder's directory; raises ModelError where the file is missing or is none."""
    content = json_object(path)
    if content is None:
        hint = "copy it there, or give another directory as model.name: one as save_pretrained writes it"
        raise ModelError("file-missing", f"model '{name}': {path} is missing\n    -> {hint}")
    return content


def check_config(config: dict[str, Any], path: Path, name: str) -> Architecture:
    """Return the family of a configuration; ModelError where no encoder of it can be built and trained from that."""
    file = f"model '{name}' ({path / 'config.json'})"
    architecture = architecture_of(str(config.get("model_type")), where=file)
    if config.get("quantization_config") is not None:
        hint = "give the model that it was made from, in floating-point numbers"
        raise ModelError("quantised-weights", f"{file}: the weights are quantised (quantization_config)\n    -> {hint}")
    if config.get("transformers_weights") is not None:
        hint = "save the encoder as it is loaded (save_pretrained writes model.safetensors) and remove the key"
        raise ModelError("other-weights", f"{file}: transformers_weights names other weights\n    -> {hint}")
    if architecture.positions == "after_padding" and type(padding := config.get("pad_token_id", 1)) is not int:
        hint = "correct it to the tokenizer's padding id, from which positions are counted"
        raise ModelError("bad-model-config", f"{file}: pad_token_id is {json.dumps(padding)}\n    -> {hint}")
    return architecture


def position_count(config: dict[str, Any], architecture: Architecture) -> int | None:
    """Return the longest input in tokens; None where positions are relative or the file does not say."""
    limit = config.get("max_position_embeddings")
    relative = architecture.positions == "relative" or config.get("position_biased_input") is False
    if not isinstance(limit, int) or relative:
        return None
    if architecture.positions != "after_padding":
        return limit
    return limit - 1 - (config.get("pad_token_id", 1) if architecture.padding_id is None else architecture.padding_id)

"""Files of a model folder: which of them are read, and what the JSON ones of a folder from elsewhere may not say.

Weights are safetensors and tokenizers JSON, so reading them runs nothing. But a configuration can name other files
(shards, vocabularies, an adapter's encoder), code of its own (``auto_map``), or a repository whose kernel transformers
would fetch and run (``attn_implementation``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from regft_core.disk.reading import read_json
from regft_core.errors import ModelError, StoreError, text_of

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
CONFIGS = ("config.json", "tokenizer_config.json")
#: Keys of a configuration that say what computes; transformers fetches what they name. Our choice replaces them.
_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
#: Keys that name files, beside those that end in ``_file``.
_NAMING = ("transformers_weights", "fast_tokenizer_files")
#: What peft writes: where it is installed, transformers puts such weights on top of the encoder's.
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")


def refuse_paths(directory: Path) -> None:
    """Raise ModelError where a JSON file of ``directory`` names a file that is not directly in it."""
    for path in sorted(directory.glob("*.index.json")):
        shards = (json_object(path) or {}).get("weight_map")
        for shard in shards.values() if isinstance(shards, dict) else ():
            _refuse_path(path, "weight_map", shard)
    for name in CONFIGS:
        content = json_object(directory / name) or {}
        for key, value in content.items():
            if key.endswith("_file") or key in _NAMING:
                for one in value if isinstance(value, list) else [value]:
                    _refuse_path(directory / name, key, one)


def refuse_outside(directory: Path) -> None:
    """Raise ModelError where reading ``directory`` would lead out of it: as ``refuse_paths``, and links, and adapters.

    Links of the hub's cache lead to its own ``blobs``, which is allowed.
    """
    refuse_paths(directory)
    refuse_adapters(directory)
    inside = directory.resolve()
    allowed = (inside, inside.parents[1] / "blobs") if inside.parent.name == "snapshots" else (inside,)
    for path in _links(directory):
        try:
            leads_out = not any(path.resolve().is_relative_to(one) for one in allowed)
        except (OSError, RuntimeError):  # to itself
            leads_out = True
        if leads_out:
            raise ModelError(
                "leads-elsewhere",
                f"{path} is a link that leads out of the folder, or to itself\n"
                "    -> put the file itself there, if you trust it",
            )


def refuse_adapters(directory: Path) -> None:
    """Raise ModelError for an adapter: its encoder would be looked up elsewhere, or its weights left out."""
    found = [file for file in ADAPTER_FILES if (directory / file).exists()]
    if found:
        raise ModelError(
            "adapter-in-encoder",
            f"{directory} has an adapter ({', '.join(found)}), and models are loaded without adapters\n    -> merge it "
            "into the weights once, with peft: PeftModel.from_pretrained(encoder, directory).merge_and_unload()"
            ".save_pretrained(new); save the tokenizer there too, and give that directory",
        )


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
    """The configuration of ``directory`` for transformers, without what ``ignored`` lists.

    Raises what transformers raises for a damaged one, or one of an unknown family.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    for key in _IMPLEMENTATIONS:
        if getattr(config, f"_{key}", None) is not None:
            setattr(config, f"_{key}", None)
    return config


def _refuse_path(file: Path, key: str, name: Any) -> None:
    if name is None:
        return
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ModelError(
            "leads-elsewhere",
            f"{file}: {key} names {json.dumps(name)[:80]}, which is not a file of this folder\n    -> do not use this "
            "model unless you know who made it; its files belong beside each other",
        )


def _links(directory: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(directory):
        yield from (path for name in (*folders, *names) if (path := Path(parent, name)).is_symlink())


def json_object(path: Path) -> dict[str, Any] | None:
    """Return what a file holds, None where it is not there. Raises ModelError for anything but a JSON object."""
    try:
        content: dict[str, Any] = read_json(path, dict)
    except StoreError as error:
        if error.code == "file-missing":
            return None
        reason = text_of(error).splitlines()[0]
        raise ModelError(error.code, f"{reason}\n    -> export or fetch the model again") from error
    return content


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
                raise ModelError(
                    "weights-missing",
                    f"model '{name}': {index} names the shard '{shard}', which is not in {path}\n"
                    "    -> copy the missing shard there",
                )
        if shards:
            return [index, *(path / shard for shard in shards)]
    if list(path.glob("*.bin")) or list(path.glob("*.pt")) or list(path.glob("*.ckpt")):
        raise ModelError(
            "pickled-weights",
            f"model '{name}': {path} has its weights only in a pickle format (.bin, .pt), which can run code when "
            "it is opened. Convert it once where you trust it: AutoModel.from_pretrained(old).save_pretrained(new) "
            "writes model.safetensors; use AutoModelForMaskedLM instead if the masked-LM head is needed.",
        )
    raise ModelError(
        "weights-missing",
        f"model '{name}': no weights in {path}; expected model.safetensors (or shards with their index)\n"
        "    -> save them there: model.save_pretrained(directory)",
    )


def tensor_shapes(path: Path) -> dict[str, list[int]]:
    """Name -> shape of every tensor in the safetensors files of a directory, read from their headers alone.

    A file that has no such header gives none: loading it says what is wrong with it.
    """
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, list[int]] = {}
    for file in sorted(path.glob("*.safetensors")):
        with suppress(OSError, SafetensorError), safe_open(file, "np") as opened:
            shapes |= {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118 - not a mapping
    return shapes


def tokenizer_files(path: Path, name: str) -> list[Path]:
    """The tokenizer's files that are there; raises ModelError where none holds a vocabulary."""
    files = [path / file for file in TOKENIZER_FILES if (path / file).is_file()]
    if not any(file.name in VOCABULARY_FILES for file in files):
        raise ModelError(
            "tokenizer-missing",
            f"model '{name}': no tokenizer in {path} (looked for {', '.join(VOCABULARY_FILES)}). "
            "Save it beside the weights: tokenizer.save_pretrained(directory)",
        )
    return files


def read_model_json(path: Path, name: str) -> dict[str, Any]:
    """Return a JSON object of the encoder's directory; raises ModelError where the file is missing or is none."""
    content = json_object(path)
    if content is None:
        raise ModelError(
            "file-missing",
            f"model '{name}': {path} is missing. A model directory holds config.json, model.safetensors (or shards "
            f"with their index) and a tokenizer ({', '.join(VOCABULARY_FILES)}), as save_pretrained writes them.\n"
            "    -> copy the missing file there, or give another directory as model.name",
        )
    return content

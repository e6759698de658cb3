"""Which files of a directory an encoder and its tokenizer are read from."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from regft_core.errors import ModelError
from regft_core.models.outside import json_object

#: Bytes of a header that safetensors reads.
_LONGEST_HEADER = 100_000_000
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
    shapes: dict[str, list[int]] = {}
    for file in sorted(path.glob("*.safetensors")):
        with (
            suppress(OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError),
            file.open("rb") as opened,
        ):
            length = int.from_bytes(opened.read(8), "little")
            if length > _LONGEST_HEADER:
                continue
            header = json.loads(opened.read(length))
            shapes |= {name: [int(n) for n in one["shape"]] for name, one in header.items() if name != "__metadata__"}
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
    """A JSON object of the encoder's directory; raises ModelError where the file is missing or is none."""
    try:
        return json_object(path)
    except FileNotFoundError as error:
        raise ModelError(
            "file-missing",
            f"model '{name}': {path} is missing. A model directory holds config.json, model.safetensors (or shards "
            f"with their index) and a tokenizer ({', '.join(VOCABULARY_FILES)}), as save_pretrained writes them.\n"
            "    -> copy the missing file there, or give another directory as model.name",
        ) from error

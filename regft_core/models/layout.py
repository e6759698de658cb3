"""A pooled classifier on disk: the directory layout of sentence-transformers, which needs nothing of regft.

The encoder and its tokenizer lie at the top (``AutoModel`` reads them), ``modules.json`` lists what follows:
``1_Pooling``, with ``pooling: unit_mean`` a normalisation, and, unless the texts of a pair are encoded separately,
``2_Dense``, whose output is the logits.
sentence-transformers has no module for a head on pairs of vectors; that head is in ``pair_head``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regft_core.errors import ModelError
from regft_core.io.files import write_json
from regft_core.io.reading import read_json
from regft_core.models.load import quiet
from regft_core.models.outside import plain_config
from regft_core.models.pooling import PooledClassifier, without_pooler

POOLING, DENSE, PAIR_HEAD = "1_Pooling", "2_Dense", "pair_head"
#: Its module has no files; sentence-transformers wants a name all the same.
NORMALIZE = "normalize"
_PACKAGE = "sentence_transformers.models"
#: What a head on pairs says of u and v. Heads without this word were fitted to unscaled vectors.
SCALED = "scaled to a root mean square of 1"


def write_modules(model: PooledClassifier, directory: Path, max_length: int | None, instruction: str = "") -> None:
    """Write encoder, pooling and head of a folded classifier into ``directory``; not the tokenizer.

    sentence-transformers puts ``instruction`` before every text by itself.
    """
    from safetensors.torch import save_file

    model.base_model.save_pretrained(directory)
    paired = model.rows_per_example == 2
    modules = [("", "Transformer"), (POOLING, "Pooling")]
    modules += [(NORMALIZE, "Normalize")] if model.pooling == "unit_mean" else []
    modules += [] if paired else [(DENSE, "Dense")]
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"{_PACKAGE}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    write_json(directory / "modules.json", listed)
    # Without a length of ours, sentence-transformers takes the tokenizer's.
    write_json(directory / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    if instruction:
        prompts = {"prompts": {"default": instruction}, "default_prompt_name": "default"}
        write_json(directory / "config_sentence_transformers.json", prompts)
    summary = model.pooling in ("cls", "last")
    pooling = {
        "word_embedding_dimension": model.config.hidden_size,
        "pooling_mode_cls_token": summary and model.summary == "first",
        "pooling_mode_lasttoken": summary and model.summary == "last",
        "pooling_mode_mean_tokens": not summary,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    write_json(directory / POOLING / "config.json", pooling)
    linear = model.classifier
    head: dict[str, Any] = {"in_features": linear.in_features, "out_features": linear.out_features, "bias": True}
    if paired:
        head |= {"features": ["u", "v", "|u - v|", "u * v"], "vectors": SCALED}
    else:
        head["activation_function"] = "torch.nn.modules.linear.Identity"
    folder = directory / (PAIR_HEAD if paired else DENSE)
    write_json(folder / "config.json", head)
    tensors = {f"linear.{name}": value.detach().contiguous() for name, value in linear.named_parameters()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


def logits_from(directory: Path, batch: dict[str, Tensor], attention: str, device: torch.device) -> Tensor:
    """Logits [B, K] computed from nothing but the files in ``directory``, with transformers and safetensors.

    Deliberately not written with ``PooledClassifier``: this is what another program would do.

    Args:
        batch: model inputs; rows 2i and 2i + 1 are the texts of pair i when the head is for pairs.
        attention: attention implementation.
    """
    from safetensors.torch import load_file
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(
        directory, local_files_only=True, use_safetensors=True, attn_implementation=attention
    )
    encoder = encoder.eval().to(device)
    batch = {name: value.to(device) for name, value in batch.items()}
    windows = batch.pop("windows", None)
    paired = (directory / PAIR_HEAD).is_dir()
    head = load_file(str(directory / (PAIR_HEAD if paired else DENSE) / "model.safetensors"), device=str(device))
    modes = read_json(directory / POOLING / "config.json")
    with torch.no_grad():
        tokens, mask = encoder(**batch).last_hidden_state, batch["attention_mask"]
        if modes["pooling_mode_mean_tokens"]:
            real = mask.unsqueeze(-1).to(tokens.dtype)
            vectors = (tokens * real).sum(1) / real.sum(1)
        else:
            place = [row.nonzero().squeeze(1)[-1 if modes["pooling_mode_lasttoken"] else 0] for row in mask]
            vectors = torch.stack([tokens[row, position] for row, position in enumerate(place)])
        if windows is not None:
            vectors = windows @ vectors
        if normalizes(directory):
            vectors = vectors / vectors.norm(dim=1, keepdim=True)
        if paired:
            vectors = vectors / vectors.pow(2).mean(-1, keepdim=True).sqrt()
            u, v = vectors[0::2], vectors[1::2]
            vectors = torch.cat([u, v, (u - v).abs(), u * v], -1)
        return torch.nn.functional.linear(vectors, head["linear.weight"], head["linear.bias"])


def normalizes(directory: Path) -> bool:
    """Whether the pipeline of a directory in this layout scales its vectors to length 1."""
    return any(str(module["type"]).endswith(".Normalize") for module in read_json(directory / "modules.json"))


def is_pooled(directory: Path) -> bool:
    """Whether ``directory`` has the layout that ``write_modules`` writes."""
    return (directory / "modules.json").is_file()


def load_modules(directory: Path) -> PooledClassifier:
    """The classifier that ``write_modules`` wrote, in evaluation mode on the CPU.

    Raises ModelError when a part is missing (a sentence encoder without a head) or does not fit.
    """
    from safetensors.torch import load_file
    from transformers import AutoModel

    head = next((directory / name for name in (DENSE, PAIR_HEAD) if (directory / name).is_dir()), None)
    if head is None:
        raise ModelError(
            "head-missing",
            f"{directory}: a sentence encoder without a head ({DENSE} or {PAIR_HEAD})"
            "\n    -> give a directory that `regft export` wrote",
        )
    try:
        if head.name == PAIR_HEAD and read_json(head / "config.json").get("vectors") != SCALED:
            raise ModelError(
                "outdated-export",
                f"{head}: this head was fitted to vectors that an earlier version of regft did not scale"
                "\n    -> export the model again (regft export)",
            )
        modes = read_json(directory / POOLING / "config.json")
        config = plain_config(directory)
        options = without_pooler(AutoModel._model_mapping[type(config)])
        with quiet():
            encoder, info = AutoModel.from_pretrained(
                directory,
                config=config,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                dtype=torch.float32,
                **options,
            )
        mean = "unit_mean" if normalizes(directory) else "mean"
        token = "last" if modes["pooling_mode_lasttoken"] else "cls"
        pooling = mean if modes["pooling_mode_mean_tokens"] else token
        model = PooledClassifier(encoder, pooling=pooling, rows_per_example=2 if head.name == PAIR_HEAD else 1)
        tensors = load_file(str(head / "model.safetensors"))
        model.classifier.load_state_dict({name.removeprefix("linear."): value for name, value in tensors.items()})
    except ModelError:
        raise
    except Exception as error:  # missing or damaged files: each library has its own errors
        raise ModelError(
            "cannot-load", f"{directory}: the model cannot be loaded: {error}\n    -> export it again"
        ) from error
    if absent := sorted(info["missing_keys"]):
        raise ModelError(
            "weights-missing",
            f"{directory}: weights are missing, among them {', '.join(absent[:3])}\n    -> export it again",
        )
    return model.eval()

"""Checks of an encoder's config.json before it is built."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from regft_core.errors import ModelError
from regft_core.models.architectures import Architecture, architecture_of, no_pooling
from regft_core.models.checkpoint_files import tensor_shapes
from regft_core.schema.encoder import EncoderConfig


def configured_architecture(config: dict[str, Any], path: Path, name: str) -> Architecture:
    """Return the architecture that config.json names; raises ModelError where no family has it."""
    return architecture_of(str(config.get("model_type")), where=f"model '{name}' ({path / 'config.json'})")


def check_config(config: dict[str, Any], path: Path, name: str) -> None:
    """Raise ModelError for a configuration that no encoder of its family can be built and trained from."""
    architecture = configured_architecture(config, path, name)
    file = f"model '{name}' ({path / 'config.json'})"
    if config.get("quantization_config") is not None:
        raise ModelError(
            "quantised-weights",
            f"{file}: the weights are quantised (quantization_config), and fine-tuning needs floating-point ones. "
            "Give the model that it was made from.",
        )
    if config.get("transformers_weights") is not None:
        raise ModelError(
            "other-weights",
            f"{file}: transformers_weights names another file of weights; save the encoder as it is loaded "
            "(save_pretrained writes model.safetensors) and remove the key",
        )
    check_size(config, path)
    if architecture.positions == "after_padding" and type(padding := config.get("pad_token_id", 1)) is not int:
        raise ModelError(
            "bad-model-config",
            f"{file}: pad_token_id is {json.dumps(padding)}; positions are counted from that number\n"
            "    -> correct it to the tokenizer's padding id, a whole number",
        )


def check_length(config: dict[str, Any], path: Path, encoder: EncoderConfig) -> None:
    """Raise ModelError where ``model.max_length`` is above the encoder's positions."""
    positions = position_count(config, configured_architecture(config, path, encoder.name))
    if positions is not None and encoder.max_length > positions:
        raise ModelError(
            "input-too-long",
            f"model.max_length: {encoder.max_length} tokens, but '{encoder.name}' has position embeddings for "
            f"{positions} only; give at most that",
        )


def check_pooling(config: dict[str, Any], path: Path, encoder: EncoderConfig) -> None:
    """Raise ModelError where the architecture has nothing that ``model.pooling`` reads."""
    if problem := no_pooling(configured_architecture(config, path, encoder.name), encoder.pooling):
        raise ModelError("pooling-not-possible", problem)


def position_count(config: dict[str, Any], architecture: Architecture) -> int | None:
    """Return the longest input in tokens; None where positions are relative or the file does not say."""
    limit = config.get("max_position_embeddings")
    relative = architecture.positions == "relative" or config.get("position_biased_input") is False
    if not isinstance(limit, int) or relative:
        return None
    return limit - config.get("pad_token_id", 1) - 1 if architecture.positions == "after_padding" else limit


def check_size(config: dict[str, Any], path: Path) -> None:
    """Raise ModelError where config.json describes more parameters than the safetensors files beside it hold.

    Before anything is built: a model of a million layers would be built first and compared with its weights then.
    """
    shapes = tensor_shapes(path)
    held = sum(math.prod(shape) for shape in shapes.values())
    if not held:
        return

    def number(*keys: str) -> int:
        values = [config.get(key) for key in keys]
        return max((value for value in values if isinstance(value, int) and not isinstance(value, bool)), default=0)

    width = max(1, number("hidden_size", "d_model", "dim"))
    layers = number("num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers")
    inner = number("intermediate_size", "d_inner", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim")
    attention = max(width, number("head_dim") * number("num_attention_heads"))
    alone = 1 if config.get("model_type") == "albert" else layers  # ALBERT's layers share their weights
    # Positions that are computed have no rows.
    positions = number("max_position_embeddings") if any("position" in name for name in shapes) else 0
    rows = number("vocab_size", "type_vocab_size", "max_relative_positions", "position_buckets", "num_labels")
    needed = {
        "layers": held + 1 if layers > max(1_000, len(shapes)) else 0,
        "layers, width and inner width": alone * width * inner,
        "width": alone * width * attention if config.get("model_type") != "albert" else width * width,
        "rows of embeddings": rows * (number("embedding_size", "embed_dim") or width),
        "positions": positions * (number("embedding_size") or width),
        "kernel": number("conv_kernel_size") * width * width,
    }
    if too_many := [what for what, count in needed.items() if count > held]:
        raise ModelError(
            "weights-do-not-fit",
            f"{path / 'config.json'} describes a model of more parameters ({', '.join(too_many)}) than the {held:,} "
            "of the weights beside it\n    -> copy config.json and weights of one model there",
        )

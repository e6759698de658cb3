"""What a step takes on machines that nobody measured here: operations per weight and token at an assumed speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regft_core.models.aliases import ALIASES

#: Weights in the layers of the encoder (embeddings take no matrix products), by the word for the size in a name.
WEIGHTS: dict[str, float] = {
    "xxlarge": 1.36e9,  # 48 layers of width 1536
    "xlarge": 6.8e8,  # 24 layers of width 1536; 48 of 1024 have 6.0e8
    "large": 3.02e8,  # 24 layers of width 1024
    "small": 9.5e6,  # 12 layers of width 256
    "base": 8.5e7,  # 12 layers of width 768
    "minilm": 1.06e7,  # 6 layers of width 384
    "mpnet": 8.5e7,
    "chinese-bert-wwm": 8.5e7,  # a base without the word
}
#: Operations per second that one GPU of the class of an A100 or H100 is assumed to sustain in training.
SPEED: dict[str, float] = {"fp32": 2.5e13, "bf16": 1.2e14, "fp16": 1.2e14}

#: The same of one CPU core; about what a core of a current server reaches with fp32 products of these sizes.
CORE_SPEED = 3.0e10


def encoder_weights(name: str, root: Path) -> float | None:
    """Weights in the encoder's layers: from the directory's configuration, else by the name; None when neither says."""
    path = root / name / "config.json"
    if name not in ALIASES and path.is_file():
        return _from_config(json.loads(path.read_text(encoding="utf-8")))
    return next((count for word, count in WEIGHTS.items() if word in name.lower()), None)


def _from_config(config: dict[str, Any]) -> float | None:
    sizes = [config.get(key) for key in ("num_hidden_layers", "hidden_size", "intermediate_size")]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes):
        return None
    layers, width, inner = known
    return float(layers * (4 * width**2 + 2 * width * inner))


def seconds_per_token(weights: float, speed: float) -> float:
    """Of a plain training step: 6 operations per weight (2 forward, 4 backward) at ``speed`` operations per second."""
    return 6 * weights / speed

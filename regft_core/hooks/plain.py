"""Plain values (words, settings) as tensors: what is kept of a run is safetensors only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from regft_core.lazy import np, torch

if TYPE_CHECKING:
    from torch import Tensor


def to_tensor(value: Any) -> Tensor:
    """``value`` (what JSON can hold) as the bytes of its JSON, uint8."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return torch.from_numpy(np.frombuffer(text.encode(), dtype=np.uint8).copy())


def from_tensor(tensor: Tensor) -> Any:
    """The value behind :func:`to_tensor`, from its bytes ``[n]``."""
    return json.loads(tensor.cpu().numpy().tobytes().decode())

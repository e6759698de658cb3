"""The linear that computes the logits, in whatever head a classifier has."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regft_core.errors import ModelError


def last_linear(model: nn.Module, head: Collection[str], outputs: int) -> str:
    """Name of the last linear with ``outputs`` outputs among the newly drawn parameters ``head`` (``Sites.head``).

    Raises ModelError where the head does not end with a linear that has a bias.
    """
    new = frozenset(head)
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == outputs and f"{name}.weight" in new
    ]
    if not found or model.get_submodule(found[-1]).bias is None:
        raise ModelError(
            "head-not-linear",
            f"the head of {type(model).__name__} does not end with a linear of {outputs} outputs and a bias; "
            "give the method 'model: {pooling: mean}'",
        )
    return found[-1]


@contextlib.contextmanager
def answering_in_fp32(model: Any) -> Iterator[None]:
    """Let the output layer compute in fp32 under autocast: bf16 keeps three digits, and fp16 ends at 65,504."""
    encoder = {id(module) for module in model.base_model.modules()}
    linears = [module for module in model.modules() if isinstance(module, nn.Linear) and id(module) not in encoder]
    layer: Any = [linear for linear in linears if linear.out_features == model.config.num_labels][-1]
    plain = layer.forward

    def forward(vectors: Tensor) -> Tensor:
        with torch.autocast(vectors.device.type, enabled=False):
            return plain(vectors.float())  # type: ignore[no-any-return]

    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward

"""The linear that computes the logits, in whatever head a classifier has."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

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

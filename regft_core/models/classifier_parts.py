"""Parts of a loaded classifier: how deep its parameters lie, its encoder, and the linear that computes the logits."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regft_core.errors import ModelError
from regft_core.models.sites import Sites

#: Depth of the embeddings and of everything that all layers share.
BELOW = 0


def depths(model: Any, sites: Sites, names: Iterable[str]) -> dict[str, int]:
    """Return the depth of every parameter of ``names``, which are names in the plain model.

    0 are the embeddings, projections behind them and what several layers share (relative positions);
    1 to N the layers in the order of the forward pass (BART: encoder, then decoder); N + 1 what comes
    after the last layer: a final norm, the pooler, the head.

    Raises ModelError where layers share their weights (ALBERT): none of them lies above another.
    """
    layers: dict[str, int] = {}
    for site in sites.layers:
        if site.name in layers:
            message = f"the layers of {sites.architecture} share their weights: none can be treated on its own"
            hint = "use another family, or a method that does not tell layers apart"
            raise ModelError("layers-shared", f"{message}\n    -> {hint}")
        layers[site.name] = site.index + 1
    above = _above(model, next(reversed(layers)))
    base = f"{model.base_model_prefix}."
    found = {}
    for name in names:
        inside = next((depth for prefix, depth in layers.items() if name.startswith(f"{prefix}.")), None)
        if inside is None:
            inside = len(layers) + 1 if name.startswith(above) or not name.startswith(base) else BELOW
        found[name] = inside
    return found


def _above(model: Any, last_layer: str) -> tuple[str, ...]:
    """Prefixes of the encoder's own parts that come after its layers: they are registered after them."""
    base = f"{model.base_model_prefix}."
    children = [f"{base}{name}" for name, _ in model.base_model.named_children()]
    holder = next(index for index, child in enumerate(children) if last_layer.startswith(f"{child}."))
    return tuple(f"{child}." for child in children[holder + 1 :]) or ("\0",)


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
        message = f"the head of {type(model).__name__} does not end with a linear of {outputs} outputs and a bias"
        raise ModelError("head-not-linear", f"{message}\n    -> give the method 'model: {{pooling: mean}}'")
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

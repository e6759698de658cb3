"""How deep in the encoder a parameter lies, for methods that treat upper and lower layers differently."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
            raise ModelError(
                "layers-shared",
                f"the layers of {sites.architecture} share their weights, so none can be treated differently from "
                "another; use another family, or a method that does not tell layers apart",
            )
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

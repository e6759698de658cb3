"""Trained keys and values in front of those of every layer, through transformers' attention interface.

The families that look their attention function up (``AttentionInterface``) get one that puts the rows
of a table before the layer's own keys and values and then calls the usual scaled dot product. The
sequence, its positions and its outputs stay as they are.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from regft_core.errors import ModelError
from regft_core.models.sites import LayerSite, SiteHooks, Sites

NAME = "regft_prefix"
#: Families whose self-attention is looked up by name and sees one sequence.
FAMILIES = ("albert", "bert", "distilbert", "electra", "eurobert", "gte", "modernbert", "roberta")

_OWNERS: WeakKeyDictionary[nn.Module, KeyValuePrefixes] = WeakKeyDictionary()


class KeyValuePrefixes:
    """The rows of ``table`` as keys and values of every layer of one model.

    Args:
        model: a classifier of one of ``FAMILIES``.
        table: [P, 2 * N * kv], key and value of each of N layer sites in turn; kv is the width of the
            layer's keys. A site is a layer as it is passed through, so ALBERT's shared layer has N prefixes.

    Attributes:
        masked: take the prefixes out of every attention; the base model's logits are left.
    """

    def __init__(self, model: Any, sites: Sites, hooks: SiteHooks, table: Tensor) -> None:
        self.table, self.layers, self.masked = table, len(sites.layers), False
        self._base = model.base_model
        self._before = self._base.config._attn_implementation
        self._site: LayerSite | None = None
        for site in sites.layers:
            for module in site.module.modules():
                _OWNERS[module] = self
        self._modules = [module for site in sites.layers for module in site.module.modules()]
        hooks.on_layer_input(self._remember, always=True)
        self._base.set_attn_implementation(NAME)

    def remove(self) -> None:
        """Give the model its own attention back."""
        self._base.set_attn_implementation(self._before)
        for module in self._modules:
            _OWNERS.pop(module, None)

    def _remember(self, tensor: Tensor, site: LayerSite) -> Tensor:
        self._site = site
        return tensor

    def extend(self, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values [B, heads, P + n, d] of the layer that is running, and the mask that belongs to them."""
        assert self._site is not None
        rows, heads, _, width = key.shape
        count = self.table.shape[0]
        own = self.table.view(count, 2 * self.layers, heads, width)[:, 2 * self._site.index : 2 * self._site.index + 2]
        # [P, 2, heads, d] -> two of [B, heads, P, d]
        first, second = own.permute(1, 2, 0, 3).unsqueeze(1).expand(2, rows, heads, count, width).to(key.dtype)
        if mask is not None or self.masked:
            if mask is None:
                mask = torch.ones(rows, 1, 1, key.shape[2], dtype=torch.bool, device=key.device)
            seen = mask.new_full((*mask.shape[:-1], count), not self.masked)
            mask = torch.cat([seen, mask], dim=-1)
        return torch.cat([first, key], dim=2), torch.cat([second, value], dim=2), mask


def key_value_width(config: Any) -> int:
    """Width of a layer's keys: heads that keys have, times the width of a head."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(heads * width)


def require_family(method: str, architecture: str) -> None:
    """ModelError for a family whose attention cannot be given prefixes."""
    if architecture not in FAMILIES:
        message = f"{method}: the attention of {architecture} takes no further keys and values"
        raise ModelError("encoder-does-not-fit", f"{message}\n    -> use an encoder of {', '.join(FAMILIES)}")


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    owner = _OWNERS.get(module)
    if owner is not None:
        key, value, attention_mask = owner.extend(key, value, attention_mask)
    found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return found


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)

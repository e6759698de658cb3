"""Virtual tokens: trained keys and values before those of every layer, or trained vectors before the words."""

from __future__ import annotations

import dataclasses
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from regft_core.errors import ModelError
from regft_core.hooks.declare import Trainee
from regft_core.models.architectures import architecture_of
from regft_core.models.checkpoint_files import position_count
from regft_core.models.sites import LayerSite, SiteHooks, Sites

NAME = "regft_prefix"
#: Families whose self-attention is looked up by name and sees one sequence.
FAMILIES = ("albert", "bert", "distilbert", "electra", "eurobert", "gte", "modernbert", "roberta")

_OWNERS: WeakKeyDictionary[nn.Module, KeyValuePrefixes] = WeakKeyDictionary()


class KeyValuePrefixes:
    """The rows of ``table`` as keys and values of every layer of a classifier of one of ``FAMILIES``.

    ``table`` [P, 2 * N * kv] has key and value of each of N layer sites in turn; kv is the width of the layer's keys.
    """

    def __init__(self, model: Any, sites: Sites, hooks: SiteHooks, table: Tensor) -> None:
        self.table, self.layers = table, len(sites.layers)
        self._base = model.base_model
        self._before = self._base.config._attn_implementation
        self._site: LayerSite | None = None
        self._modules = [module for site in sites.layers for module in site.module.modules()]
        _OWNERS.update(dict.fromkeys(self._modules, self))
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
        if mask is not None:
            mask = torch.cat([mask.new_ones((*mask.shape[:-1], count)), mask], dim=-1)
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
    if (owner := _OWNERS.get(module)) is not None:
        key, value, attention_mask = owner.extend(key, value, attention_mask)
    return sdpa_attention_forward(module, query, key, value, attention_mask, **options)


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


class Prompts:
    """Puts the rows of ``table`` [P, E] before the word embeddings of every forward pass.

    The encoder reads P + n positions, padding on the left before them. With ``strip``, and always where a head pools
    over the attention mask, hidden states begin with the text again before anything reads them.
    """

    def __init__(self, trainee: Trainee, table: Tensor, *, method: str, strip: bool) -> None:
        model: Any = trainee.model
        self.trainee, self.table, self.method = trainee, table, method
        # Regft's own heads, and those of newer families that pool, do so over the mask of the text.
        first = getattr(model.config, "classifier_pooling", "cls") in ("cls", "bos")
        self.pooled_over_text = hasattr(model, "pooling") or not first
        self.strip = strip or self.pooled_over_text
        base = model.base_model
        self._handles = [base.register_forward_pre_hook(self._before, with_kwargs=True)]
        if self.strip:
            self._handles.append(base.register_forward_hook(self._after))

    def remove(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()

    def _before(self, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ids = args[0] if args else kwargs["input_ids"]
        count, rows = self.table.shape[0], ids.shape[0]
        require_room(self.method, base, ids.shape[1], count)
        words = base.get_input_embeddings()(ids)
        own = self.table.unsqueeze(0).expand(rows, -1, -1).to(words.dtype)
        mask = kwargs.get("attention_mask")
        mask = functional.pad(torch.ones_like(ids) if mask is None else mask, (count, 0), value=1)
        vectors = torch.cat([own, words], dim=1)
        if self.trainee.tokenizer.padding_side == "left":
            places = mask.argsort(dim=1, stable=True)  # padding, then the vectors and the text in their order
            mask, vectors = mask.gather(1, places), vectors.take_along_dim(places.unsqueeze(-1), 1)
        changed = {**kwargs, "input_ids": None, "inputs_embeds": vectors, "attention_mask": mask}
        if kwargs.get("token_type_ids") is not None:
            changed["token_type_ids"] = functional.pad(kwargs["token_type_ids"], (count, 0))
        current = self.trainee.current
        if current is not None:
            # What forward sites know of the running pass has to fit the tensors they see.
            segment = functional.pad(current.segment, (count, 0), value=-1)
            self.trainee.current = dataclasses.replace(current, attention_mask=mask, segment=segment)
        return args[1:], changed

    def _after(self, base: Any, args: tuple[Any, ...], output: Any) -> Any:
        hidden = output.last_hidden_state = output.last_hidden_state[:, self.table.shape[0] :]
        if getattr(output, "pooler_output", None) is not None:  # the encoder's own pooler; ALBERT's is a linear
            albert = isinstance(base.pooler, nn.Linear)
            output.pooler_output = base.pooler_activation(base.pooler(hidden[:, 0])) if albert else base.pooler(hidden)
        return output


def text_positions(base: Any, ids: Tensor) -> Tensor:
    """The positions that a family with absolute positions gives to the tokens of a text, [B, n]."""
    if architecture_of(base.config.model_type).positions == "after_padding":
        real = ids.ne(base.config.pad_token_id).int()
        return (torch.cumsum(real, dim=1) * real + base.config.pad_token_id).long()
    return torch.arange(ids.shape[1], device=ids.device).expand_as(ids)


def require_room(method: str, base: Any, length: int, count: int) -> None:
    """ModelError when the encoder has no positions for ``count`` more tokens."""
    room = position_count(vars(base.config), architecture_of(base.config.model_type))
    if room is not None and length + count > room:
        what = f"{method}: an input of {length} tokens and {count} virtual ones exceed the encoder's {room}"
        raise ModelError("input-too-long", f"{what} positions; set model.max_length to {room - count} or less")

"""Trained vectors before the word embeddings of every input."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regft_core.errors import ModelError
from regft_core.models.architectures import architecture_of

if TYPE_CHECKING:
    from regft_core.training.trainee import Trainee

#: Families in which vectors cannot stand before the words: the decoder reads ids, padding stands on the left.
REFUSED = ("bart", "xlnet")


class Prompts:
    """Puts the rows of ``table`` [P, E] before the word embeddings of every forward pass.

    The encoder reads P + n positions; segment ids of the new ones are 0. With ``strip`` the hidden states of the
    first P positions are taken off again before anything reads them, and a pooler inside the encoder reads
    the text's own first token. A head that pools over the attention mask always gets them stripped.

    Args:
        strip: whether hidden states begin with the text.
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
        changed = {**kwargs, "input_ids": None, "inputs_embeds": torch.cat([own, words], dim=1)}
        mask = kwargs.get("attention_mask")
        changed["attention_mask"] = _extended(torch.ones_like(ids) if mask is None else mask, count, 1)
        if kwargs.get("token_type_ids") is not None:
            changed["token_type_ids"] = _extended(kwargs["token_type_ids"], count, 0)
        current = self.trainee.current
        if current is not None:
            # What forward sites know of the running pass has to fit the tensors they see.
            segment = None if current.segment is None else _extended(current.segment, count, -1)
            mask = _extended(current.attention_mask, count, 1)
            self.trainee.current = dataclasses.replace(current, attention_mask=mask, segment=segment)
        return args[1:], changed

    def _after(self, base: Any, args: tuple[Any, ...], output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[:, self.table.shape[0] :]
        if getattr(output, "pooler_output", None) is not None:
            output.pooler_output = _pooled(base, output.last_hidden_state)
        return output


def _extended(tensor: Tensor, count: int, value: int) -> Tensor:
    return torch.cat([tensor.new_full((tensor.shape[0], count), value), tensor], dim=1)


def _pooled(base: Any, hidden: Tensor) -> Tensor:
    """The encoder's own pooler on hidden states [B, n, H]."""
    if isinstance(base.pooler, nn.Linear):  # ALBERT
        found: Tensor = base.pooler_activation(base.pooler(hidden[:, 0]))
    else:
        found = base.pooler(hidden)
    return found


def text_positions(base: Any, ids: Tensor) -> Tensor:
    """The positions that a family with absolute positions gives to the tokens of a text, [B, n]."""
    architecture = architecture_of(base.config.model_type)
    if architecture.positions == "after_padding":
        real = ids.ne(base.config.pad_token_id).int()
        return (torch.cumsum(real, dim=1) * real + base.config.pad_token_id).long()
    return torch.arange(ids.shape[1], device=ids.device).expand_as(ids)


def require_room(method: str, base: Any, length: int, count: int) -> None:
    """ModelError when the encoder has no positions for ``count`` more tokens."""
    architecture = architecture_of(base.config.model_type)
    if architecture.positions == "relative":
        return
    room = base.config.max_position_embeddings
    if architecture.positions == "after_padding":
        room -= base.config.pad_token_id + 1
    if length + count > room:
        raise ModelError(
            "input-too-long",
            f"{method}: an input of {length} tokens and {count} virtual ones exceed the encoder's {room} positions; "
            f"set model.max_length to {room - count} or less",
        )

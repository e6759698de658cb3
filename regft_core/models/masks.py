"""Attention masks that are built for the encoder, which then need not look into them.

Given a mask ``[B, n]``, transformers asks in every forward pass whether any token is padding; on a GPU
the host waits for the answer. A batch knows it from when it was built, so a base model gets either no
mask or the finished one. Both are bit for bit what transformers would have made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regft_core.models.architectures import architecture_of


def prepared(base: Any, mask: Tensor, padded: bool | None) -> Any:
    """Return what ``base`` gets as ``attention_mask`` instead of ``mask [B, n]``.

    Nothing where no token is padding; ``[B, 1, n, n]`` (booleans, or what is added to the scores where attention is
    eager), for families with local attention one for each kind of layer. The mask itself where the family takes no
    finished ones, or where ``padded`` is None: nobody knows.
    """
    form = architecture_of(base.config.model_type).finished_mask
    if form is None or padded is None or mask.dim() != 2:
        return mask
    if not padded:
        return None
    from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask

    given = {
        "config": base.config,
        # Only its shape, type and device are read.
        "inputs_embeds": torch.empty((*mask.shape, 0), device=mask.device),
        "attention_mask": mask,
        "allow_is_bidirectional_skip": False,
    }
    if form == "global":
        return create_bidirectional_mask(**given)
    return {
        "full_attention": create_bidirectional_mask(**given),
        "sliding_attention": create_bidirectional_sliding_window_mask(**given),
    }


@contextmanager
def prepared_masks(model: Any, padded: bool | None) -> Iterator[None]:
    """Within the block the classifier's base model gets :func:`prepared` masks; heads still see ``[B, n]``."""
    base = model.base_model

    def finish(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mask = kwargs.get("attention_mask")
        if mask is None:
            return None
        return args, {**kwargs, "attention_mask": prepared(base, mask, padded)}

    # The last hook before the model: hooks that lengthen the mask (virtual tokens) have run.
    handle = base.register_forward_pre_hook(finish, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()

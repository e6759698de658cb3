"""A classifier that answers by its checkpoint's masked-LM head: the logits of label words at the mask.

The logits are those of the masked LM at the mask of a row, for one token per label (Gao et al., 2021, equation 1).
There is no new parameter. Which token is the mask, and which ones stand for labels, are buffers, so that weights alone
say how a row is read. The preparation of a phase that trains on labels sets both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regft_core.models.pooling import ClassifierOutput


class MaskClassifier(nn.Module):
    """A masked language model with the surface of a transformers classifier.

    Its modules have the names that they have in the family's own class for masked LMs.

    Args:
        language_model: the family's class, loaded.
        head: the modules after the encoder as one: hidden vectors [m, H] to vocabulary logits [m, V].

    Attributes:
        pretrained_head: whether the checkpoint held the whole head.
    """

    pooling = "mask"
    label_words: Tensor
    mask_token: Tensor

    def __init__(self, language_model: Any, head: nn.Module, *, pretrained: bool = True) -> None:
        super().__init__()
        self.config = language_model.config
        self.base_model_prefix: str = language_model.base_model_prefix
        for name, module in language_model.named_children():
            self.add_module(name, module)
        self.pretrained_head = pretrained
        self._masked_lm_head = (head,)  # its modules are registered above, under the family's names
        self.register_buffer("label_words", torch.zeros(self.config.num_labels, dtype=torch.int64))
        self.register_buffer("mask_token", torch.tensor(-1))

    @property
    def base_model(self) -> Any:
        """The encoder."""
        return self.get_submodule(self.base_model_prefix)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.label_words.device

    @property
    def masked_lm_head(self) -> nn.Module:
        """Hidden vectors [m, H] to vocabulary logits [m, V]."""
        return self._masked_lm_head[0]

    def get_input_embeddings(self) -> nn.Module:
        embeddings: nn.Module = self.base_model.get_input_embeddings()
        return embeddings

    def at_mask(self, hidden: Tensor, input_ids: Tensor) -> Tensor:
        """[B, H]: of hidden states [B, n, H] those at the mask of each row of ``input_ids`` [B, n]."""
        position = (input_ids == self.mask_token).to(torch.int64).argmax(1)
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), position]

    def forward(self, **inputs: Tensor) -> ClassifierOutput:
        """Logits [B, K] of the label words at the mask of each row."""
        hidden = self.base_model(**inputs)[0]
        vocabulary = self.masked_lm_head(self.at_mask(hidden, inputs["input_ids"]))
        return ClassifierOutput(vocabulary.index_select(1, self.label_words))

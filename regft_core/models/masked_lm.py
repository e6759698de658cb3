"""Masking tokens, and masked language models beside (or on top of) a classifier."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regft_core.config.schema import DropoutConfig
from regft_core.models.load import load_classifier, load_masked_lm_head

if TYPE_CHECKING:
    from regft_core.data.batches import Batch
    from regft_core.models.source import ModelSource
    from regft_core.training.trainee import Trainee


def choose_positions(maskable: Tensor, rate: float, rule: str, generator: torch.Generator) -> Tensor:
    """Choose the positions to mask, as booleans ``[B, n]``.

    Args:
        maskable: booleans ``[B, n]``; no other position is ever chosen.
        rule: ``count`` takes max(1, round(rate * maskable positions)) of every row that has
            any, ``bernoulli`` takes each position with probability ``rate``.
    """
    scores = torch.rand(maskable.shape, generator=generator, device=maskable.device)
    if rule == "bernoulli":
        return (scores < rate) & maskable
    available = maskable.sum(1)
    wanted = (available * rate).round().clamp_min(1 if rate > 0 else 0)
    ranks = scores.masked_fill(~maskable, 2.0).argsort(1).argsort(1)
    return (ranks < wanted.unsqueeze(1)) & maskable


def maskable(batch: Batch, keyword_segment: str | None) -> Tensor:
    """Booleans ``[B, n]``: what the tokenizer did not add, padding and a task's keyword segment left out."""
    allowed = (batch.special_mask == 0) & (batch.attention_mask == 1)
    if keyword_segment is not None:
        allowed &= batch.segment != (0 if keyword_segment == "text" else 1)
    return allowed


def masked_positions(allowed: Tensor, rate: float, rule: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(rows, columns) of the tokens to mask; see :func:`choose_positions`."""
    rows, columns = choose_positions(allowed, rate, rule, generator).nonzero(as_tuple=True)
    return rows, columns


def undecayed(trainee: Trainee, attached: str) -> dict[str, nn.Parameter]:
    """Vectors (biases and norms) of an attached module, by trained name, which weight decay leaves alone."""
    prefix = f"attached.{attached}."
    named = trainee.named_trainable()
    return {name: parameter for name, parameter in named if name.startswith(prefix) and parameter.dim() < 2}


def with_tokens(batch: Batch, positions: tuple[Tensor, Tensor], tokens: Tensor | int) -> Batch:
    """A copy of the batch with ``tokens`` (one, or one per position) at ``positions`` (rows, columns)."""
    ids = batch.input_ids.clone()
    ids[positions] = torch.as_tensor(tokens, dtype=ids.dtype, device=ids.device)
    return dataclasses.replace(batch, input_ids=ids)


def own_parameters(head: nn.Module, model: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of a masked-LM head that the model does not have: all but the tied embedding."""
    shared = {id(parameter) for parameter in model.parameters()}
    return {name: parameter for name, parameter in head.named_parameters() if id(parameter) not in shared}


class SecondEncoder(nn.Module):
    """A masked language model of its own, from the same checkpoint as the classifier.

    Attributes:
        encoder: the base model, without a classifier.
        head: masked-LM head, tied to the encoder's own input embedding.
        pretrained: whether the checkpoint held the head.
    """

    def __init__(self, source: ModelSource, *, dropout: DropoutConfig, head_seed: int, token_types: bool) -> None:
        super().__init__()
        # Pooled, so that the encoder has no pooler of its own, which masked LMs do not read.
        classifier = load_classifier(
            source, kind="classification", labels=("0", "1"), dropout=dropout, head_seed=head_seed, pooling="mean"
        )
        self.head, self.pretrained = load_masked_lm_head(source, classifier, head_seed=head_seed)
        self.encoder: Any = classifier.base_model
        self.token_types = token_types

    def forward(self, batch: Batch) -> Tensor:
        """Last hidden states ``[B, n, H]``."""
        inputs = batch.model_inputs()
        if not self.token_types:
            inputs.pop("token_type_ids", None)
        return self.encoder(**inputs)[0]

"""Freezing the encoder, so that only a head and what methods attach are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regft_core.training.trainee import Trainee


def freeze_encoder(trainee: Trainee) -> None:
    """Freeze every parameter of the model that is not newly drawn; a pretrained pooler is part of the encoder."""
    head = frozenset(trainee.sites.head)
    for name, parameter in trainee.named_raw():
        if name not in head:
            parameter.requires_grad_(False)

"""Optimisers; ``training.optimizer`` names a row of ``SHIPPED``, or a file (``regft_core/catalogue.py`` finds it).

A file defines ``build(groups, training)``. ``groups`` are those of ``training.optim.parameter_groups``, each with its
own ``lr`` and ``weight_decay``, which the optimiser must honour; ``training`` is the protocol, whose ``betas`` and
``epsilon`` all optimisers share. Weight decay is decoupled.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from regft_core.lazy import torch
from regft_core.schema.training import TrainingConfig


def adamw(groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW with bias correction (Loshchilov and Hutter, 2019)."""
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, eps=training.epsilon, fused=True)


SHIPPED = {"adamw": SimpleNamespace(build=adamw)}

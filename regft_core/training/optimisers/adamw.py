"""AdamW with bias correction (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

from typing import Any

import torch

from regft_core.schema.training import TrainingConfig


def build(groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, eps=training.epsilon, fused=True)

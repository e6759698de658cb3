"""Adamax (Kingma and Ba, 2015, algorithm 2) with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regft_core.config.schema import TrainingConfig


class DecoupledAdamax(torch.optim.Adamax):
    """Adamax whose weight decay acts on the weights, not on the gradient.

    Torch's Adamax adds decay to the gradient, where the sensitivity of PATS would see it;
    here, as in AdamW, weights shrink by ``lr * weight_decay`` before the update.
    """

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=0.0)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:  # type: ignore[override]
        decays = [group["weight_decay"] for group in self.param_groups]
        for group in self.param_groups:
            shrink = 1.0 - float(group["lr"]) * group["weight_decay"]
            if shrink != 1.0:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.mul_(shrink)
            group["weight_decay"] = 0.0
        try:
            return super().step(closure)
        finally:
            for group, decay in zip(self.param_groups, decays, strict=True):
                group["weight_decay"] = decay


def build(groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer:
    optimizer = DecoupledAdamax(groups, lr=training.learning_rate, betas=training.betas, eps=training.epsilon)
    for group, given in zip(optimizer.param_groups, groups, strict=True):
        group["weight_decay"] = given["weight_decay"]
    return optimizer

"""Adamax (Kingma and Ba, 2015, algorithm 2) with decoupled weight decay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regft_core.schema.training import TrainingConfig
from regft_core.training.chunks import Scratch, chunked


class DecoupledAdamax(torch.optim.Adamax):
    """Adamax whose weight decay acts on the weights, not on the gradient.

    Torch's Adamax adds decay to the gradient, where the sensitivity of PATS would see it;
    here, as in AdamW, weights shrink by ``lr * weight_decay`` before the update.
    On a CPU the update goes piece by piece, with the bits of torch's; on a GPU torch steps all tensors at once.
    """

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=0.0)
        self._scratch = Scratch()

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        if any(p.device.type != "cpu" for group in self.param_groups for p in group["params"]):
            self._torch_step()
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _torch_step(self) -> None:
        decays = [group["weight_decay"] for group in self.param_groups]
        for group in self.param_groups:
            shrink = 1.0 - float(group["lr"]) * group["weight_decay"]
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if shrink != 1.0 and moved:
                torch._foreach_mul_(moved, shrink)
            group["weight_decay"] = 0.0
        try:
            super().step()
        finally:
            for group, decay in zip(self.param_groups, decays, strict=True):
                group["weight_decay"] = decay

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_inf"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        (beta1, beta2), eps, rate = group["betas"], group["eps"], float(group["lr"])
        shrink = 1.0 - rate * group["weight_decay"]
        corrected = -rate / (1 - beta1 ** float(state["step"]))
        for weight, own, average, largest in chunked(parameter, gradient, state["exp_avg"], state["exp_inf"]):
            if shrink != 1.0:
                weight.mul_(shrink)
            average.lerp_(own, 1 - beta1)
            size = torch.abs(own, out=self._scratch.like(own)).add_(eps)
            torch.maximum(largest.mul_(beta2), size, out=largest)
            weight.addcdiv_(average, largest, value=corrected)


def build(groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer:
    return DecoupledAdamax(groups, lr=training.learning_rate, betas=training.betas, eps=training.epsilon)

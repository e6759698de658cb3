"""Adam with a pull to given weights, annealed against its own steps (RecAdam, Chen et al., EMNLP 2020)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from regft_core.schema.training import TrainingConfig
from regft_core.training.chunks import chunked


class RecallAdam(torch.optim.Optimizer):
    """Parameters whose name is in ``anchors`` are pulled there; all others take AdamW steps.

    Args:
        groups: each with ``names``, ``params``, ``weight_decay`` and ``base_lr``.
        strength: of the pull, times (1 - task share) and the learning rate.

    Each group's ``task_share`` (lambda in the paper) is that of the coming step.
    """

    def __init__(
        self, groups: list[dict[str, Any]], anchors: Mapping[str, Tensor], training: TrainingConfig, strength: float
    ) -> None:
        for group in groups:
            group["lr"] = group["base_lr"]
        super().__init__(groups, {"lr": training.learning_rate, "weight_decay": 0.0, "task_share": 1.0})
        self.anchors, self.strength = anchors, strength
        self.betas, self.epsilon = training.betas, training.epsilon

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:  # type: ignore[override]
        for group in self.param_groups:
            for name, parameter in zip(group["names"], group["params"], strict=True):
                if parameter.grad is not None:
                    self._update(parameter, self.anchors.get(name), group)

    def _update(self, parameter: Tensor, anchor: Tensor | None, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[parameter], self.betas
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        gradient = parameter.grad
        assert gradient is not None
        state["step"] += 1
        count, rate = float(state["step"]), float(group["lr"])
        share = 1.0 if anchor is None else float(group["task_share"])
        for weight, own, average, squares, to in chunked(
            parameter, gradient, state["exp_avg"], state["exp_avg_sq"], parameter if anchor is None else anchor
        ):
            average.lerp_(own, 1 - beta1)
            squares.mul_(beta2).addcmul_(own, own, value=1 - beta2)
            scale = (squares / (1 - beta2**count)).sqrt_().add_(self.epsilon)
            weight.addcdiv_(average, scale, value=-rate * share / (1 - beta1**count))
            if anchor is not None:
                weight.sub_((weight - to) * (rate * (1 - share) * self.strength))
            if group["weight_decay"]:
                weight.mul_(1 - rate * group["weight_decay"])

"""Optimisers that methods bring: RecAdam, which pulls to given weights, and SAGE, whose steps follow sensitivity."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regft_core.schema.training import TrainingConfig
from regft_core.training.chunks import Scratch, chunked


class _ByTensor(torch.optim.Optimizer):
    """Updates one tensor after the other, each with its name and group."""

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for name, parameter in zip(group["names"], group["params"], strict=True):
                if parameter.grad is not None:
                    self._update(name, parameter, parameter.grad, group)

    def _update(self, name: str, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        raise NotImplementedError


class RecallAdam(_ByTensor):
    """Adam with a pull, annealed against its own steps (Chen et al., EMNLP 2020).

    Parameters whose name is in ``anchors`` are pulled there by ``strength`` times (1 - task share) and the learning
    rate; all others take AdamW steps. Each group's ``task_share`` (lambda in the paper) is that of the coming step.
    """

    def __init__(
        self, groups: list[dict[str, Any]], anchors: Mapping[str, Tensor], training: TrainingConfig, strength: float
    ) -> None:
        super().__init__(groups, {"lr": training.learning_rate, "weight_decay": 0.0, "task_share": 1.0})
        self.anchors, self.strength = anchors, strength
        self.betas, self.epsilon = training.betas, training.epsilon

    def _update(self, name: str, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        anchor, state, (beta1, beta2) = self.anchors.get(name), self.state[parameter], self.betas
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
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


class SensitivityGuided(_ByTensor):
    """Adamax or AdamW; the step of an entry of ``names`` is multiplied by ``|I - A| / (A + eps^2)``.

    I is the entry's sensitivity ``|weight * gradient|``, A its moving average, which already includes I.
    Other parameters get the base rule.

    ``options`` are those of ``methods/sage.py``, which says how the variant ``released`` differs.
    """

    def __init__(
        self, groups: list[dict[str, Any]], names: Collection[str], training: TrainingConfig, options: Any
    ) -> None:
        self.base, self.betas, self.eps, self.decay = options.base, training.betas, training.epsilon, options.decay
        self.mean, self.released = options.multiplier == "mean", options.variant == "released"
        self.guided = frozenset(names)
        #: Sensitivities of the coming step by name, where they are not those of ``.grad``.
        self.observed: dict[str, Tensor] = {}
        super().__init__(groups, {})

    def _update(self, name: str, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        second = "exp_inf" if self.base == "adamax" else "exp_avg_sq"
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state[second] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            if name in self.guided:
                state["sensitivity"] = torch.zeros_like(parameter)
        state["step"] += 1
        count = int(state["step"])
        tensors = [parameter, gradient, state["exp_avg"], state[second]]
        if name in self.guided:
            tensors.append(state["sensitivity"])
            if name in self.observed:
                tensors.append(self.observed.pop(name))
        # The mean factor is that of the whole tensor.
        for weight, own, first, moment, *sensitivity in [tensors] if self.mean else chunked(*tensors):
            factor = None
            if sensitivity:
                average, *observed = sensitivity
                factor = self._factor(observed[0] if observed else (weight * own).abs_(), average, count)
            self._move(weight, self._direction(own, first, moment, count), factor, group)

    def _move(self, weight: Tensor, direction: Tensor, factor: Tensor | None, group: dict[str, Any]) -> None:
        rate, decay = float(group["lr"]), float(group["weight_decay"])
        inside = self.released and self.base == "adamax"
        if inside and decay:
            direction.add_(weight, alpha=decay)
        elif decay and not self.released:
            weight.mul_(1 - rate * decay)
        weight.add_(direction if factor is None else direction.mul_(factor), alpha=-rate)
        if self.released and not inside and decay:
            weight.mul_(1 - float(group["base_lr"]) * decay)

    def _factor(self, own: Tensor, average: Tensor, count: int) -> Tensor:
        """Return the factor of the step of each entry of sensitivity ``own``; moves the average."""
        average.lerp_(own, 1 - self.decay)
        # Adam's form corrects the average's start at zero, Adamax's does not.
        current = average / (1 - self.decay**count) if self.base == "adamw" else average
        factor = own.sub_(current).abs_().div_(current + self.eps**2)
        return factor.mean() if self.mean else factor

    def _direction(self, gradient: Tensor, first: Tensor, second: Tensor, count: int) -> Tensor:
        """The base rule's step at a learning rate of 1, a new tensor; moves the moments."""
        beta1, beta2 = self.betas
        first.lerp_(gradient, 1 - beta1)
        correction = 1 - beta1**count
        if self.base == "adamax":
            torch.maximum(second.mul_(beta2), gradient.abs().add_(self.eps), out=second)
            if self.released:
                return first / (second + self.eps)
            return (first / second).div_(correction)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = math.sqrt(1 - beta2**count)
        if self.released:
            scale = second.sqrt().add_(self.eps).div_(root)
        else:
            scale = second.sqrt().div_(root).add_(self.eps)
        return (first / scale).div_(correction)


class _SquaredDistance(torch.autograd.Function):
    """Autograd would keep a difference and a square of every tensor; here both are computed in the cache."""

    @staticmethod
    def forward(ctx: Any, targets: Sequence[Tensor], *weights: Tensor) -> Tensor:
        ctx.targets = targets
        ctx.save_for_backward(*weights)
        scratch, sums = Scratch(), []
        for pair in zip(weights, targets, strict=True):
            parts = [torch.sub(own, to, out=scratch.like(own)).square_().sum() for own, to in chunked(*pair)]
            sums.append(torch.stack(parts).sum())
        return torch.stack(sums).sum()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        scale, found = 2 * outer[0], []
        for weight, target in zip(ctx.saved_tensors, ctx.targets, strict=True):
            found.append(torch.empty_like(weight))
            for out, own, to in chunked(found[-1], weight, target):
                torch.sub(own, to, out=out).mul_(scale)
        return None, *found


def squared_distance(weights: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Sum of (weight - target)^2 over all entries of all tensors, a scalar."""
    return _SquaredDistance.apply(targets, *weights)

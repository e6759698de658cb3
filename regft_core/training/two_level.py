"""One step of a two-level search: an upper parameter on held-out rows, the weights on the rest.

Lower level: weights W minimise the training loss. Upper level: attention a minimises the validation loss at the weights
that one gradient step of rate eta reaches. The chain rule gives

    d/da L_val(W - eta * dL_tr/dW, a) = dL_val/da - eta * (d2 L_tr / da dW) v,   v = dL_val/dW'

and the mixed derivative times v is estimated from two gradients at W +- e v, e = radius / |v| (Liu, Simonyan, Yang,
"DARTS", 2019, section 2.3). Both gradients must see the same dropout masks: with independent ones it is noise.

``TwoLevelStep`` updates the upper parameters from this hypergradient; the loop then steps the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from regft_core.hooks.declare import LOG_EVERY
from regft_core.training.chunks import Scratch, chunked
from regft_core.training.optim import rate_factor, warmup_steps
from regft_core.training.step import Step, gradients


@dataclass
class TwoLevelStep:
    """Hypergradient and update of the upper parameters in one search step.

    Attributes:
        upper: the upper parameters, which ``optimizer`` steps; they ask for gradients only while one is needed,
            because each costs a pass over its weight.
        rate, shape: their learning rate at the top of the schedule, and its schedule after the shared warm-up.
        implicit: factor of the implicit term: the weights' learning rate, 1, or no such term.
        radius: length of the finite-difference shift.
        interval: the upper parameters are updated every this many steps.
        inner_gradient: ``reused`` hands the gradient at the old upper parameters to the loop, which saves the loop's
            own pass; ``fresh`` lets it see the new ones.
        updated: called after each update with the step's index, the hypergradient and the loss that it lowers.
        implicit_share: |implicit term| / (|direct term| + |implicit term|) of the hypergradient, 2-norms over all
            upper parameters; None where it was not measured or there is no such term. It is measured in steps whose
            index ``LOG_EVERY`` divides; in a search of fewer than five times as many steps, in each.
        last: whether no later step of the run updates the upper parameters.
    """

    upper: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    rate: float
    shape: Callable[[float], float]
    implicit: Literal["learning_rate", "none", "one"]
    radius: float
    interval: int
    inner_gradient: Literal["fresh", "reused"]
    updated: Callable[[int, list[Tensor], Tensor], None]

    def __post_init__(self) -> None:
        self.validation_loss = torch.tensor(float("nan"))
        self.implicit_share: Tensor | None = None
        self.last = False

    def due(self, step: Step) -> bool:
        """Whether this batch updates the upper parameters (once per step, whatever the accumulation)."""
        return step.micro == 0 and step.index % self.interval == 0 and step.validation is not None

    def virtual(self, step: Step) -> Tensor | None:
        """DARTS: the gradient at the virtually stepped weights (equations 5 and 6 of weight mixup).

        Returns the training loss if its gradient was left for the loop (``reused``), else None. The weights are bit for
        bit those from before.
        """
        weights = step.weights()
        if self.implicit == "none":
            self._update(step, self._validation_gradients(step, weights)[0])
            return None
        copies = [weight.detach().clone() for weight in weights]  # adding and subtracting a shift would round
        loss = partial(self._training_loss, step, 0)
        inner_loss = loss()
        inner_gradient = gradients(inner_loss, weights)
        shift(weights, inner_gradient, -step.learning_rate)
        if self.inner_gradient == "fresh":
            inner_gradient = []  # as large as the model, and not needed any more
        direct, direction = self._validation_gradients(step, weights)
        restore(weights, copies)
        mixed = mixed_term(loss, loss, weights, direction, self.upper, self.radius)
        restore(weights, copies)
        torch._foreach_mul_(mixed, 1.0 if self.implicit == "one" else step.learning_rate)
        self._update(step, direct, mixed)
        if self.inner_gradient == "fresh":
            return None
        for weight, gradient in zip(weights, torch._foreach_mul(inner_gradient, step.share), strict=True):
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return inner_loss.detach()

    def stepped(self, step: Step) -> None:
        """Do what the released code of weight mixup does, its slips included.

        The weights take a real step first and stay displaced by the radius; the direction is preconditioned by Adam's
        second moment; the two sides of the difference see independent dropout masks; Adam's moments are dropped once,
        after the first step.
        """
        assert step.optimizer is not None
        weights = step.weights()
        loss = step.task_loss(step.forward("train", draw=0))
        step.backward(loss / step.share)  # a step of its own: no other batch adds to it
        if step.setting.training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(weights, step.setting.training.clip_norm)
        step.optimizer.step()
        step.optimizer.zero_grad(set_to_none=True)
        direct, gradient = self._validation_gradients(step, weights)
        if self.implicit == "none":
            self._update(step, direct)
            return
        direction = _preconditioned(step.optimizer, weights, gradient)
        plus, minus = (partial(self._training_loss, step, draw) for draw in (2, 3))
        self._update(step, direct, mixed_term(plus, minus, weights, direction, self.upper, self.radius))
        if step.index == 0:
            step.optimizer.state.clear()

    def _validation_gradients(self, step: Step, weights: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Gradients of the validation loss in upper parameters and weights, from one backward."""
        assert step.validation is not None
        batch = step.validation.batch(step.index // self.interval)
        self._ask_for_gradients(True)
        logits = step.forward("validation", batch=batch, draw=1)
        self.validation_loss = step.task_loss(logits, batch.labels)
        found = gradients(self.validation_loss, [*self.upper, *weights])
        step.forward_passes += 1 - batch.input_ids.shape[0] / step.batch.input_ids.shape[0]  # one pass, any size
        step.backward_passes += 1
        return found[: len(self.upper)], found[len(self.upper) :]

    def _training_loss(self, step: Step, draw: int) -> Tensor:
        """The loss of a pass over the step's batch, to be differentiated once; equal draws share dropout masks."""
        step.backward_passes += 1
        return step.task_loss(step.forward("train", draw=draw))

    def _update(self, step: Step, direct: list[Tensor], implicit: list[Tensor] | None = None) -> None:
        """Step the upper parameters by the hypergradient, and measure the implicit term's share."""
        gradient = direct
        self.implicit_share = None
        if implicit is not None:
            gradient = list(torch._foreach_sub(direct, implicit))
            if step.total < 5 * LOG_EVERY or step.index % LOG_EVERY == 0:
                own = global_norm(implicit)
                self.implicit_share = own / torch.clamp(global_norm(direct) + own, min=1e-30)
        warmup = warmup_steps(step.setting.training, step.total)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * rate_factor(self.shape, step.index, step.total, warmup)
        for parameter, value in zip(self.upper, gradient, strict=True):
            parameter.grad = value
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._ask_for_gradients(False)
        self.last = step.index + self.interval >= step.total
        self.updated(step.index, gradient, self.validation_loss.detach())

    def _ask_for_gradients(self, needed: bool) -> None:
        for parameter in self.upper:
            parameter.requires_grad_(needed)


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """2-norm over all entries of all tensors."""
    return torch.linalg.vector_norm(torch.stack(list(torch._foreach_norm([tensor.float() for tensor in tensors]))))


@torch.no_grad()
def shift(weights: Sequence[Tensor], direction: Sequence[Tensor], scale: Tensor | float) -> None:
    """Add the scalar ``scale`` times ``direction`` to ``weights`` in place; on a GPU to all at once, same bits."""
    if weights[0].device.type != "cpu":
        torch._foreach_add_(list(weights), torch._foreach_mul(list(direction), scale))
        return
    scratch = Scratch()
    for weight, move in zip(weights, direction, strict=True):
        for part, own in chunked(weight, move):
            part.add_(torch.mul(own, scale, out=scratch.like(own)))


@torch.no_grad()
def restore(weights: Sequence[Tensor], copies: Sequence[Tensor]) -> None:
    """Put ``copies`` back."""
    torch._foreach_copy_(list(weights), list(copies))


def mixed_term(
    loss_plus: Callable[[], Tensor],
    loss_minus: Callable[[], Tensor],
    weights: Sequence[Tensor],
    direction: Sequence[Tensor],
    attention: Sequence[Tensor],
    radius: float,
) -> list[Tensor]:
    """Central difference of dL/da along ``direction``: ``(d2 L / da dW) direction``; the losses choose their draws.

    Leaves the weights at W - e * direction; the caller restores them (or not: the released weight mixup does not).
    """
    norm = global_norm(direction)
    epsilon = radius / torch.clamp(norm, min=1e-12)
    shift(weights, direction, epsilon)
    plus = gradients(loss_plus(), attention)
    shift(weights, direction, -2 * epsilon)
    minus = gradients(loss_minus(), attention)
    found = list(torch._foreach_sub(plus, minus))
    torch._foreach_div_(found, 2 * epsilon)
    return found


def _preconditioned(
    optimizer: torch.optim.Optimizer, weights: Sequence[Tensor], gradient: Sequence[Tensor]
) -> list[Tensor]:
    """The gradient divided, per tensor, by the root of Adam's mean second moment; nothing waits for a device."""
    group = optimizer.param_groups[0]
    beta2, epsilon = group.get("betas", (0.9, 0.999))[1], group.get("eps", 1e-8)
    direction = []
    for weight, slope in zip(weights, gradient, strict=True):
        state = optimizer.state.get(weight, {})
        if "exp_avg_sq" in state:
            # In double precision, as the host would compute it: the steps of a fused optimiser are on its device.
            steps = state["step"].double()
            correction = (1 - torch.full_like(steps, beta2).pow(steps)).sqrt()
            slope = slope * correction / ((beta2 * state["exp_avg_sq"]).mean().sqrt() + epsilon)
        direction.append(slope)
    return direction

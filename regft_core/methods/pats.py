"""PATS: noise according to the sensitivity of parameters (Zhang et al., EMNLP 2022).

After each Adamax step, entries of the encoder's matrices and biases get Gaussian noise with
probability p. Its variance is ``strength * max(mean sensitivity of the tensor / own
sensitivity - threshold, 0)``: entries that matter little for the loss are shaken most. The
noise does not shrink with the learning rate.

No code was released. Where the paper contradicts itself or is silent:
- sensitivity: equation 1 takes the absolute value of weight times gradient, algorithm 1
  does not. ``sensitivity: abs`` and ``signed``. Under ``signed`` only entries with the sign
  of their tensor's mean get noise, and epsilon does not bound it.
- epsilon has no published value although, under ``abs``, it bounds the largest noise; the
  largest standard deviation is logged, and ``max_std`` can limit it (off by default).
- variance or standard deviation: formula and text say variance; ``noise_std: linear`` takes
  the same number as the standard deviation.
- sensitivity is read off the gradient after clipping, at the weights before the update.
- perturbed are weights and biases inside the layers without LayerNorm; embeddings, pooler
  and head are not. A tensor without a gradient (frozen) is left alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from regft_core.config.schema import StrictModel
from regft_core.hooks.base import Handed, Regulariser
from regft_core.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from regft_core.training.step import Step
    from regft_core.training.trainee import Trainee

#: Diagnostics wait for the device, so they are taken every this many steps.
LOG_EVERY = 10


class PatsConfig(StrictModel):
    """Options of PATS; in parentheses the paper's symbols."""

    strength: float = Field(2e-6, ge=0, description="scale of the noise variance (lambda)")
    threshold: float = Field(0.002, ge=0, description="relative insensitivity below which there is no noise (gamma)")
    decay: float = Field(0.75, ge=0, lt=1, description="of the moving average of the sensitivity (beta)")
    probability: float = Field(0.2, ge=0, le=1, description="share of the entries that get noise in a step (p)")
    epsilon: float = Field(1e-8, gt=0, description="added to the sensitivity in the denominator; not published")
    sensitivity: Literal["abs", "signed"] = Field("abs", description="equation 1, or algorithm 1 as printed")
    noise_std: Literal["sqrt", "linear"] = Field("sqrt", description="whether the intensity is a variance or an sd")
    intensity: Literal["sensitivity", "uniform"] = Field(
        "sensitivity", description="uniform: every entry gets the mean intensity of its tensor (a control)"
    )
    max_std: float | None = Field(None, gt=0, description="largest standard deviation of the noise; null: no limit")


def update_sensitivity(average: Tensor, weight: Tensor, gradient: Tensor, options: PatsConfig, buffer: Tensor) -> None:
    """Move ``average`` towards ``|weight * gradient|`` (or its signed form), in place; no bias correction."""
    torch.mul(weight, gradient, out=buffer)
    if options.sensitivity == "abs":
        buffer.abs_()
    average.lerp_(buffer, 1 - options.decay)


def noise_std(average: Tensor, options: PatsConfig, out: Tensor | None = None) -> Tensor:
    """Standard deviation of the noise of every entry, before the Bernoulli choice (equations 3 and 4).

    Args:
        average: moving average of the sensitivity, any shape.
        out: tensor of the same shape to work in.
    """
    out = torch.add(average, options.epsilon, out=out)
    torch.div(average.mean() * options.strength, out, out=out)
    if options.sensitivity == "signed":
        # A mean of 0 over a denominator of 0: nothing is known of such an entry.
        out.nan_to_num_(nan=0.0, posinf=float("inf"), neginf=float("-inf"))
    out.sub_(options.strength * options.threshold).clamp_min_(0.0)
    if options.intensity == "uniform":
        out.fill_(out.mean())
    if options.noise_std == "sqrt":
        out.sqrt_()
    return out if options.max_std is None else out.clamp_max_(options.max_std)


def add_noise(weight: Tensor, std: Tensor, probability: float, generator: torch.Generator, buffer: Tensor) -> Tensor:
    """Add ``q * z`` to ``weight`` in place, q normal with ``std`` and z Bernoulli; return the noise that is not 0.

    Every entry gets both draws, which a GPU does in no time. ``buffer`` has the weight's shape.
    """
    buffer.uniform_(generator=generator)
    chosen = torch.lt(buffer, probability)
    buffer.normal_(generator=generator).mul_(std).mul_(chosen)
    weight.add_(buffer)
    return buffer


def add_sparse_noise(
    weight: Tensor, std: Tensor, probability: float, generator: torch.Generator, buffer: Tensor
) -> Tensor:
    """The same law as :func:`add_noise`, for CPUs, where random draws cost more than all arithmetic.

    The distances between the chosen entries are geometric, so one uniform draw finds the next
    of them and entries in between need none.
    """
    count, flat = weight.numel(), buffer.view(-1)
    # Enough distances to pass the end but for 8 standard deviations.
    draws = min(count, math.ceil(count * probability + 8 * math.sqrt(count * probability * (1 - probability)) + 16))
    scale = 1 / math.log1p(-probability) if probability < 1 else 0.0
    distances = flat[:draws].uniform_(generator=generator).neg_().log1p_().mul_(scale)
    chosen = distances.to(torch.int64).add_(1).cumsum(0).sub_(1)
    chosen = chosen[: int(torch.searchsorted(chosen, count))]
    noise = flat[: chosen.numel()].normal_(generator=generator).mul_(std.view(-1)[chosen])
    weight.view(-1).index_add_(0, chosen, noise)
    return noise


class Pats(Regulariser):
    """Adds noise to insensitive entries after every step of Adamax."""

    name = "pats"
    Config = PatsConfig
    off: ClassVar[dict[str, Any]] = {"strength": 0.0}

    @classmethod
    def optimizer(cls, options: PatsConfig) -> str | None:
        # Also at strength 0, which therefore is plain Adamax rather than plain fine-tuning.
        return "adamax"

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.trainee = trainee
        self.averages: dict[str, Tensor] = {}
        self._buffers: tuple[Tensor, Tensor] | None = None
        self._updated = False

    @property
    def _silent(self) -> bool:
        return self.options.strength == 0 or self.options.probability == 0

    def _targets(self) -> list[tuple[str, nn.Parameter]]:
        """(name, trained tensor) of the perturbed tensors that have a gradient in this step."""
        named = ((name, self.trainee.raw(name)) for name in self.trainee.sites.perturbable)
        return [(name, parameter) for name, parameter in named if parameter.grad is not None]

    def _views(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """Shared work space: two tensors in the parameter's shape."""
        if self._buffers is None:
            size = max(self.trainee.raw(name).numel() for name in self.trainee.sites.perturbable)
            one, two = (torch.empty(size, device=parameter.device, dtype=parameter.dtype) for _ in range(2))
            self._buffers = (one, two)
        one, two = (buffer[: parameter.numel()].view(parameter.shape) for buffer in self._buffers)
        return one, two

    def after_clip(self, step: Step) -> None:
        """Sensitivity from this step's gradient and the weights that produced it (equations 1 and 2)."""
        if self._silent:
            return
        with torch.no_grad():
            targets = self._targets()
            # Under fp16 an overflowing step is skipped by the scaler; it must not enter the average.
            self._updated = step.scaler is None or all(bool(p.grad.isfinite().all()) for _, p in targets)  # type: ignore[union-attr]
            if not self._updated:
                return
            for name, parameter in targets:
                assert parameter.grad is not None
                if name not in self.averages:
                    self.averages[name] = torch.zeros_like(parameter)
                buffer = self._views(parameter)[0]
                update_sensitivity(self.averages[name], parameter, parameter.grad, self.options, buffer)

    def after_update(self, step: Step) -> None:
        """Add the noise to the updated fp32 weights (equation 4 and algorithm 1, line 14)."""
        if self._silent or not self._updated:
            return
        generator = step.generator("pats.noise")
        logging = step.index % LOG_EVERY == 0
        add = add_sparse_noise if self.trainee.device.type == "cpu" else add_noise
        largest, squares = [], []
        with torch.no_grad():
            for name, parameter in self._targets():
                std, buffer = self._views(parameter)
                noise_std(self.averages[name], self.options, out=std)
                noise = add(parameter, std, self.options.probability, generator, buffer)
                if logging:
                    largest.append(std.max())
                    squares.append(torch.stack([noise.square().sum(), parameter.square().sum()]))
            if logging and largest:
                self._log(step.index, torch.stack(largest).max(), torch.stack(squares).sum(0))

    def _log(self, index: int, largest: Tensor, squares: Tensor) -> None:
        self.diagnostics.log("pats.max_noise_std", index, float(largest))
        self.diagnostics.log("pats.noise_to_weight_rms", index, float((squares[0] / squares[1]).sqrt()))

    def state(self) -> dict[str, Tensor]:
        return {f"sensitivity/{name}": value for name, value in self.averages.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        prefix = "sensitivity/"
        for key, value in state.items():
            name = key.removeprefix(prefix)
            self.averages[name] = value.to(self.trainee.raw(name).device).clone()

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """The final moving average of the sensitivity, for the paper's figures 2 and 3."""
        return self.state()

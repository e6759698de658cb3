"""PATS: noise according to the sensitivity of parameters (Zhang et al., EMNLP 2022).

After each Adamax step, entries of the encoder's matrices and biases get Gaussian noise with
probability p. Its variance is ``strength * max(mean sensitivity of the tensor / own
sensitivity - threshold, 0)``: entries that matter little for the loss are shaken most. The
noise does not shrink with the learning rate.

No code was released. Where the paper contradicts itself or is silent:
- sensitivity: equation 1 takes the absolute value of weight times gradient, algorithm 1
  does not. ``sensitivity: abs`` and ``signed``. Under ``signed`` only entries with the sign
  of their tensor's mean get noise, and epsilon does not bound it.
- epsilon: equation 4 adds it to an entry's sensitivity s, so the ratio is mean / (s + epsilon); algorithm 1 (line 10)
  has sum / (N * s + epsilon), which is the same with epsilon / N. Equation 4 is followed.
- epsilon has no published value although, under ``abs``, it bounds the largest noise; the
  largest standard deviation is logged, and ``max_std`` can limit it (off by default).
- variance or standard deviation: formula and text say variance; ``noise_std: linear`` takes
  the same number as the standard deviation.
- sensitivity is read off the gradient after clipping, at the weights before the update.
- beside a gradient mask (Child-Tuning, DPS), the sensitivity is that of the gradient before the mask. Entries that
  the mask leaves alone in a step get no noise in it: without a gradient, nothing would correct the noise.
- perturbed are weights and biases inside the layers without LayerNorm; embeddings, pooler
  and head are not. A tensor without a gradient (frozen) is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Flip, Handed, Regulariser, StrictModel
from regft_core.hooks.declare import LOG_EVERY, Step, Tensor, Trainee, behind
from regft_core.lazy import torch
from regft_core.training.chunks import CPU_CHUNK, Scratch, chunked, groups_within

#: Entries that a GPU perturbs at once; they take up to five times the memory of so many weights while it does.
GROUP = 1 << 25


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
    """Move ``average`` towards ``|weight * gradient|`` (or its signed form), in place; no bias correction.

    All have one shape.
    """
    torch.mul(weight, gradient, out=buffer)
    if options.sensitivity == "abs":
        buffer.abs_()
    average.lerp_(buffer, 1 - options.decay)


def noise_std(
    average: Tensor,
    options: PatsConfig,
    out: Tensor | None = None,
    scale: Tensor | None = None,
    sizes: Sequence[int] | None = None,
) -> Tensor:
    """Standard deviation of the noise of every entry, before the Bernoulli choice (equations 3 and 4).

    Args:
        average: moving average of the sensitivity, any shape.
        out: tensor of the same shape to work in.
        scale: mean of the tensor's average times the strength, where ``average`` is a part of the tensor, or several.
        sizes: of the tensors that ``average`` holds one after the other, where it is several.
    """
    scale = average.mean() * options.strength if scale is None else scale
    out = torch.add(average, options.epsilon, out=out)
    torch.div(scale, out, out=out)
    if options.sensitivity == "signed":
        # A mean of 0 over a denominator of 0: nothing is known of such an entry.
        out.nan_to_num_(nan=0.0, posinf=float("inf"), neginf=float("-inf"))
    out.sub_(options.strength * options.threshold).clamp_min_(0.0)
    if options.intensity == "uniform":
        out.fill_(out.mean()) if sizes is None else out.copy_(spread_means(out.split(list(sizes))))
    if options.noise_std == "sqrt":
        out.sqrt_()
    return out if options.max_std is None else out.clamp_max_(options.max_std)


def spread_means(parts: Sequence[Tensor], factor: float = 1.0, signed: bool = False) -> Tensor:
    """``factor`` times the mean of every part at each of its places, parts one after the other; for GPUs.

    In few kernels, whatever the number of parts; one per part where entries may be negative (``signed``).
    """
    if signed:
        means = [part.mean() * factor for part in parts]
    else:  # then the 1-norm is the sum
        means = list(torch._foreach_norm(list(parts), 1))
        torch._foreach_mul_(means, [factor / part.numel() for part in parts])
    return torch.cat([mean.expand(part.numel()) for mean, part in zip(means, parts, strict=True)])


def draw_noise(std: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """``q * z``, of the shape of ``std``: q normal, z Bernoulli; every entry gets both draws, quick on a GPU."""
    buffer = torch.empty_like(std).uniform_(generator=generator)
    chosen = torch.lt(buffer, probability)
    return buffer.normal_(generator=generator).mul_(std).mul_(chosen)


def choose(count: int, probability: float, generator: torch.Generator, buffer: Tensor) -> Tensor:
    """Sorted places (int64) of those of ``count`` entries that get noise, each with ``probability``; for CPUs.

    ``buffer [n]`` has room for the draws.

    There random draws cost more than all arithmetic. The distances between the chosen entries are geometric,
    so one uniform draw finds the next of them and entries in between need none.
    """
    # Enough distances to pass the end but for 8 standard deviations.
    draws = min(count, math.ceil(count * probability + 8 * math.sqrt(count * probability * (1 - probability)) + 16))
    scale = 1 / math.log1p(-probability) if probability < 1 else 0.0
    chosen = torch.empty(draws, dtype=torch.int64)
    space, last = buffer.view(-1)[:CPU_CHUNK], -1
    for part in chosen.split(CPU_CHUNK):
        distances = space[: part.numel()].uniform_(generator=generator).neg_().log1p_().mul_(scale)
        part.copy_(distances).add_(1)
        part[0] += last
        last = int(torch.cumsum(part, 0, out=part)[-1])
    return chosen[: int(torch.searchsorted(chosen, count))]


def add_sparse_noise(weight: Tensor, std: Tensor, chosen: Tensor, generator: torch.Generator, buffer: Tensor) -> Tensor:
    """Add normal noise to ``chosen [k]`` entries of ``weight`` in place, ``std [k]`` that of each; return the noise."""
    noise = buffer.view(-1)[: chosen.numel()].normal_(generator=generator).mul_(std)
    weight.view(-1).index_add_(0, chosen, noise)
    return noise


def move_averages(
    averages: list[Tensor],
    weights: list[Tensor],
    gradients: list[Tensor],
    options: PatsConfig,
    finite: Tensor | None = None,
) -> None:
    """:func:`update_sensitivity` of many tensors in few kernels; nothing moves where the scalar ``finite`` is 0."""
    for places in groups_within([weight.numel() for weight in weights], GROUP):
        part = slice(places.start, places.stop)
        products = list(torch._foreach_mul(weights[part], gradients[part]))
        if options.sensitivity == "abs":
            torch._foreach_abs_(products)
        if finite is not None:
            products = [
                torch.where(finite, one, average) for one, average in zip(products, averages[part], strict=True)
            ]
        torch._foreach_lerp_(averages[part], products, 1 - options.decay)


def perturb(
    weights: list[Tensor],
    averages: list[Tensor],
    options: PatsConfig,
    generator: torch.Generator,
    finite: Tensor | None = None,
    logging: bool = False,
    moves: Sequence[Tensor | None] = (),
) -> list[tuple[Tensor, Tensor]]:
    """Noise of the same law on many tensors in few kernels, for GPUs; none where ``moves`` (of a shape) is False.

    Returns, where ``logging``, (largest standard deviation, squares of noise and of weights) of every group.
    """
    sizes = [weight.numel() for weight in weights]
    measured = []
    for places in groups_within(sizes, GROUP):
        part = slice(places.start, places.stop)
        flat = [average.reshape(-1) for average in averages[part]]
        scale = spread_means(flat, options.strength, signed=options.sensitivity == "signed")
        together = torch.cat(flat)
        std = noise_std(together, options, out=together, scale=scale, sizes=sizes[part])
        if finite is not None:
            std.mul_(finite)
        if any(one is not None for one in moves[part]):
            pairs = zip(weights[part], moves[part], strict=True)
            std.mul_(torch.cat([(torch.ones_like(w) if one is None else one.to(w)).reshape(-1) for w, one in pairs]))
        noise = draw_noise(std, options.probability, generator)
        views = [one.view(w.shape) for one, w in zip(noise.split(sizes[part]), weights[part], strict=True)]
        torch._foreach_add_(weights[part], views)
        if logging:
            squares = torch.stack(torch._foreach_norm(weights[part])).square().sum()
            measured.append((std.max(), torch.stack([noise.square().sum(), squares])))
    return measured


class Pats(Regulariser):
    name = "pats"
    Config = PatsConfig
    off = {"strength": 0.0}
    controls = {
        "uniform": Flip(
            {"intensity": "uniform"}, "every entry of a matrix gets the matrix's mean intensity, blind to sensitivity"
        ),
        "no_noise": Flip({"strength": 0.0}, "no noise after the step; the same optimiser"),
    }
    sources = {
        "strength": "paper: appendix A.2",
        "threshold": "paper: appendix A.2",
        "decay": "paper: appendix A.2",
        "probability": "paper: appendix A.2",
        "epsilon": "ours: not stated; below typical products (5e-8 to 1e-5), so it bounds the noise of few entries",
        "sensitivity": "paper: section 2.1, equation 1",
        "noise_std": "paper: section 2.2; the standard deviation is the root of the intensity",
        "intensity": "ours: sensitivity is the method, uniform its control",
        "max_std": "ours: no limit, as printed",
    }

    @classmethod
    def declare(cls, options: PatsConfig) -> Declares:
        # At strength 0 its wish for Adamax remains. PATS acts after the pass, so the pass can be recorded.
        silent = options.strength == 0 or options.probability == 0
        return Declares(active=not silent, optimizer="adamax", recordable=True, gradients_at="after_clip")

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.averages: dict[str, Tensor] = {}
        self._scratch, self._buffer = Scratch(), Scratch()
        #: Under fp16: 1 where the step's gradient was finite. None: not asked, it is checked elsewhere.
        self._finite: Tensor | None = None

    def _targets(self) -> list[tuple[str, torch.nn.Parameter]]:
        """(name, trained tensor) of the perturbed tensors that have a gradient in this step."""
        named = ((name, self.trainee.raw(name)) for name in self.trainee.sites.perturbable)
        return [(name, parameter) for name, parameter in named if parameter.grad is not None]

    def observe_gradients(self, step: Step) -> None:
        """Sensitivity from this step's gradient and the weights that produced it (equations 1 and 2)."""
        with torch.no_grad():
            targets = self._targets()
            for name, parameter in targets:
                if name not in self.averages:
                    self.averages[name] = torch.zeros_like(parameter)
            gradients = [gradient_of for name, _ in targets if (gradient_of := step.gradient(name)) is not None]
            # Under fp16 an overflowing step is skipped by the scaler; it must not enter the average.
            self._finite = step.finite()
            weights: list[Tensor] = [p for _, p in targets]
            averages = [self.averages[name] for name, _ in targets]
            if self.trainee.grouped:
                move_averages(averages, weights, gradients, self.options, self._finite)
                return
            if self._finite is not None and not self._finite:  # to look costs nothing on a CPU
                return
            for tensors in zip(averages, weights, gradients, strict=True):
                for part, own, slope in chunked(*tensors):
                    update_sensitivity(part, own, slope, self.options, self._scratch.like(part))

    def perturb_weights(self, step: Step) -> None:
        """Add the noise to the updated fp32 weights (equation 4 and algorithm 1, line 14)."""
        generator, logging = step.generator("pats.noise"), step.index % LOG_EVERY == 0
        with torch.no_grad():
            targets = self._targets()
            weights: list[Tensor] = [p for _, p in targets]
            averages = [self.averages[name] for name, _ in targets]
            moves = [step.movable(name) for name, _ in targets]
            if self.trainee.grouped:
                measured = perturb(weights, averages, self.options, generator, self._finite, logging, moves)
            else:
                each = zip(weights, averages, moves, strict=True)
                measured = [part for own in each for part in self._perturb(*own, generator, logging)]
            if measured:
                largest, squares = (torch.stack(values) for values in zip(*measured, strict=True))
                noise, own_squares = squares.sum(0)
                self.diagnostics.log("pats.max_noise_std", step.index, float(largest.max()))
                self.diagnostics.log("pats.noise_to_weight_rms", step.index, float((noise / own_squares).sqrt()))

    def _perturb(
        self, parameter: Tensor, average: Tensor, moves: Tensor | None, generator: torch.Generator, logging: bool
    ) -> list[tuple[Tensor, Tensor]]:
        """Noise on one tensor on a CPU; returns, where ``logging``, what :func:`perturb` returns of a group."""
        options = self.options
        buffer = self._buffer.like(parameter)
        chosen = choose(parameter.numel(), options.probability, generator, buffer)
        if logging or options.intensity == "uniform":  # what is read of all entries
            everywhere = noise_std(average, options, out=self._scratch.like(average))
            std = everywhere.view(-1)[chosen]
        else:
            scale = average.mean() * options.strength
            std = noise_std(average.view(-1)[chosen], options, scale=scale)
        if self._finite is not None:
            std = std * self._finite
        if moves is not None:
            std = std * moves.reshape(-1)[chosen]
        noise = add_sparse_noise(parameter, std, chosen, generator, buffer)
        return [(everywhere.max(), torch.stack([noise.square().sum(), parameter.square().sum()]))] if logging else []

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """Mean sensitivity of each perturbed tensor after the last step, for tables and figures."""
        return {f"sensitivity/{name}": average.mean() for name, average in self.averages.items()}

    def state(self) -> dict[str, Tensor]:
        return {f"sensitivity/{name}": value for name, value in self.averages.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.averages = behind("sensitivity/", state)

"""Child-Tuning (Xu et al., EMNLP 2021): only a child network of the weights is updated.

The gradient is multiplied by a mask after clipping, right before the optimiser:

- F (``mask: bernoulli``): in every step each entry is kept with probability ``share`` and divided by it.
- D (``mask: <phase>``): the mask that the regulariser ``fisher`` measured in an earlier phase, the same in
  every step, not rescaled. Tensors without a mask (embeddings, pooler, head) are trained as usual.
- ``mask: fixed`` (a control of F): drawn once and kept for the whole run, else as F. The control of D draws its mask
  in the phase that measures it (``scores: random`` of ``fisher``).

Paper and released code differ in how the Fisher information is measured (``variant`` of ``fisher``). The
released trainer also ignores the warm-up ratio of its script; ``training: {warmup_ratio: 0}`` does the same.

Decisions:
- the optimiser is the protocol's; the released AdamW adds epsilon before the bias correction and decays after the step.
- weight decay and momentum still act on masked entries, as in the released optimiser. Noise on the weights
  (PATS) does not: an entry that the mask leaves alone in a step gets none.
- F masks everything that is trained, attached modules included; ``scope: layers`` only what is in the layers.
- F's masks are drawn by tensor name, so they do not depend on the order of the tensors.
- under Adam, F's steps are smaller by about the square root of ``share``: its second moment sees g / share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Flip, Handed, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Step, Tensor, Trainee, behind
from regft_core.lazy import torch
from regft_core.schema import Name
from regft_core.training.chunks import CPU_CHUNK

#: Masks that are drawn rather than taken from an earlier phase.
DRAWN = ("bernoulli", "fixed")


class ChildTuningConfig(StrictModel):
    mask: Name = Field(
        "bernoulli",
        description="bernoulli: drawn in every step (F); fixed: drawn once (a control); or the name of the phase "
        "that measured it (D)",
    )
    share: float = Field(0.3, gt=0, le=1, description="share of the entries that are kept, for masks that are drawn")
    scope: Literal["all", "layers"] = Field("all", description="tensors that a drawn mask covers")
    rescale: bool = Field(True, description="divide what a drawn mask keeps by the share")


def draw_mask(like: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Booleans in the shape of ``like``, each true with probability ``share`` (to a multiple of 2^-32).

    An entry takes 32 random bits; torch's own Bernoulli takes 64 on a CPU, and four times as long.
    """
    below = min(round(share * 2**32), 2**32 - 1) - 2**31
    mask = torch.empty(like.numel(), dtype=torch.bool, device=like.device)
    size = CPU_CHUNK if like.device.type == "cpu" else max(2, mask.numel())
    bits = torch.empty((size + 1) // 2, dtype=torch.int64, device=like.device)
    for part in mask.split(size):
        drawn = bits[: (part.numel() + 1) // 2].random_(-(2**63), None, generator=generator)
        torch.lt(drawn.view(torch.int32)[: part.numel()], below, out=part)
    return mask.view(like.shape)


class ChildTuning(Regulariser):
    name = "child_tuning"
    Config = ChildTuningConfig
    off = {"share": 1.0}
    controls = {
        "fixed": Flip(
            {"mask": "fixed"},
            "one mask for the whole run instead of a fresh one in every step",
            when=lambda options: options.mask == "bernoulli",
        )
    }
    sources = {
        "mask": "ours: F, the form that needs no earlier phase",
        "share": "code: alibaba/AliceMind ChildTuning/run.sh:5",
        "scope": "code: alibaba/AliceMind ChildTuning/ChildTuningOptimizer.py:61-63; every tensor for F",
        "rescale": "code: alibaba/AliceMind ChildTuning/ChildTuningOptimizer.py:63; for F",
    }

    @classmethod
    def declare(cls, options: ChildTuningConfig) -> Declares:
        drawn = options.mask in DRAWN
        return Declares(
            active=not drawn or options.share < 1,
            needs={} if drawn else {options.mask: "state"},
            trains_encoder=not drawn or options.scope == "layers",
            gradients_at="after_clip",
        )

    @classmethod
    def check_options(cls, options: ChildTuningConfig, phase: Phase) -> list[str]:
        if options.mask in DRAWN:
            return []
        written = [name for name in ("share", "scope", "rescale") if name in options.model_fields_set]
        return [f"{name} belongs to masks that are drawn; phase '{options.mask}' decides it" for name in written]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        drawn = self.options.mask in DRAWN
        self.factor = 1 / self.options.share if drawn and self.options.rescale else 1.0
        self.masks = self._taken(handed[self.options.mask]) if self.declares.needs else {}

    def _mask(self, name: str, gradient: Tensor, step: Step) -> Tensor:
        """The mask of one tensor in this step, in the gradient's shape."""
        if self.options.mask == "bernoulli":
            return draw_mask(gradient, self.options.share, step.generator("child_tuning.mask", name))
        if name not in self.masks:
            # Drawn when first needed: only then is everything attached. A resumed run draws it again.
            generator = self.trainee.generator("child_tuning.fixed_mask", name)
            draw = torch.rand(gradient.shape, generator=generator, device=gradient.device)
            self.masks[name] = draw < self.options.share
        return self.masks[name]

    def _taken(self, handed: Handed) -> dict[str, Tensor]:
        """The mask that an earlier phase measured; ModelError when it measured none, or of another encoder."""
        found = behind("mask/", handed.of("fisher"))
        if not found:
            raise ModelError(
                "mask-missing",
                f"child_tuning: phase '{self.options.mask}' hands over no mask; write "
                "'regularisers: {fisher: {share: 0.3}}' and 'training: {epochs: 0}' in it",
            )
        own = dict(self.trainee.named_raw())
        wrong = [name for name, mask in found.items() if name not in own or own[name].shape != mask.shape]
        if wrong:
            raise ModelError(
                "mask-does-not-fit",
                f"child_tuning: the mask of phase '{self.options.mask}' does not fit {wrong[0]}\n"
                "    -> start both phases from the same encoder",
            )
        return {name: mask.to(own[name].device) for name, mask in found.items()}

    def gradient_masks(self, step: Step) -> Iterator[tuple[str, Tensor | float]]:
        taken, everywhere = bool(self.declares.needs), self.options.scope == "all"
        prefixes = self.trainee.layer_prefixes
        for name, parameter in self.trainee.named_trainable():
            covered = name in self.masks if taken else everywhere or name.startswith(prefixes)
            if covered and parameter.grad is not None:
                yield name, self._mask(name, parameter.grad, step)
                if self.factor != 1.0:
                    yield name, self.factor

"""NoisyTune: noise on the pretrained weights before fine-tuning (Wu et al., ACL 2022).

Every tensor W gets W + U(-intensity/2, intensity/2) * std(W), once, before the first step.

Differences between paper and released code (``variant``):
- paper: the parameters of the pretrained model are perturbed, the new head is not.
- released: the published snippet loops over all parameters of the classifier, head included.

Decisions:
- std is that of a tensor's entries with n - 1 in the denominator, as in the snippet. A tensor of one entry has none
  and stays (the bias of a one-output head would become NaN); so do constant tensors, whose std is 0.
- tied tensors are perturbed once.
- methods that pull toward pretrained weights pull toward those without the noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Flip, Regulariser, StrictModel, Variant
from regft_core.hooks.declare import Tensor, Trainee
from regft_core.lazy import torch


class NoisyTuneConfig(StrictModel):
    variant: Variant = Field("paper", description="paper: pretrained tensors; released: the new head as well")
    intensity: float = Field(0.15, ge=0, description="width of the uniform law in standard deviations (lambda)")
    scaling: Literal["tensor", "global"] = Field("tensor", description="global: one size of noise, of the same energy")


def deviations(tensors: Mapping[str, Tensor], scaling: str) -> dict[str, float]:
    """The standard deviation by which each tensor's noise is scaled; tensors of one entry are left out."""
    spreads = {name: float(tensor.double().std()) for name, tensor in tensors.items() if tensor.numel() > 1}
    if scaling == "tensor" or not spreads:
        return spreads
    count = sum(tensors[name].numel() for name in spreads)
    energy = sum(tensors[name].numel() * value**2 for name, value in spreads.items())
    return dict.fromkeys(spreads, float((energy / count) ** 0.5))


class NoisyTune(Regulariser):
    name = "noisy_tune"
    Config = NoisyTuneConfig
    off = {"intensity": 0.0}
    controls = {"global": Flip({"scaling": "global"}, "all tensors get noise of one size, of the same energy in sum")}
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "intensity": "paper: Yuan et al. 2023, table 15; the middle of 0.1, 0.15 and 0.2",
        "scaling": "code: Yuanhy1997/HyPe main.py:37",
    }

    @classmethod
    def declare(cls, options: NoisyTuneConfig) -> Declares:
        return Declares(active=options.intensity > 0, edits=("weights",))

    def edit_weights(self, trainee: Trainee) -> None:
        spared = frozenset(trainee.sites.head) if self.options.variant == "paper" else frozenset()
        chosen = {name: parameter for name, parameter in trainee.named_raw() if name not in spared}
        with torch.no_grad():
            for name, std in deviations(chosen, self.options.scaling).items():
                parameter = chosen[name]
                # A generator for each tensor: what one draws does not depend on which others are perturbed.
                generator = trainee.generator("noisy_tune.noise", name)
                draw = torch.rand(parameter.shape, generator=generator, device=parameter.device)
                parameter.add_((draw - 0.5) * (self.options.intensity * std))

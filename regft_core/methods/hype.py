"""HyPe: noise on the hidden representations (Yuan et al., ACL 2023).

Fresh noise of size about 1e-5 is added to the input of every Transformer layer while
training; hidden dropout is set to 0, attention dropout stays. The first noise hits the
embedding output, nothing is added after the last layer, and padding gets noise too.

Differences between paper and released code:
- uniform law: the paper's interval is read as symmetric, U(-scale, scale); the released code
  draws U(0, scale), whose mean is scale / 2. ``distribution: uniform`` and
  ``uniform_one_sided``.
- weight decay and betas differ between the paper's text and the released command; they
  belong to the shared protocol here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Description, DropoutWish, Flip, Handed, Regulariser, StrictModel, Variant
from regft_core.hooks.declare import LayerSite, Tensor, Trainee
from regft_core.lazy import torch
from regft_core.schema import SomeItems
from regft_core.training.perturbation import draw


class HypeConfig(StrictModel):
    distribution: Literal["normal", "uniform", "uniform_one_sided"] = "normal"
    scale: float = Field(1e-5, ge=0, description="sd of the normal law, or bound of the uniform ones; absolute")
    layers: Literal["all"] | SomeItems[int] = Field(
        "all", description="layers whose input is perturbed, 0-based; negative numbers count from the top"
    )
    position: Literal["between_layers", "within_layers", "both"] = Field(
        "between_layers", description="before each layer, before its feed-forward part, or both (appendix G)"
    )
    hidden_dropout: Literal["off", "keep"] = "off"
    passes: SomeItems[str] | None = Field(None, description="named passes that get noise; all by default")


class Hype(Regulariser):
    name = "hype"
    Config = HypeConfig
    off = {"scale": 0.0, "hidden_dropout": "keep"}
    controls = {"no_noise": Flip({"scale": 0.0}, "no noise; dropout as in the method")}
    sources = {
        "distribution": "paper: appendix D.2, whose combinations take HyPe-N",
        "scale": "code: Yuanhy1997/HyPe main.py:204; the paper chooses between 1e-5 and 1e-4 by task",
        "layers": "paper: appendix G, table 18; all layers score best there",
        "position": "paper: appendix G, table 17; between layers scores best there",
        "hidden_dropout": "paper: section 4.2",
        "passes": "paper: appendix D.2; in R-Drop both passes have noise",
    }

    @classmethod
    def declare(cls, options: HypeConfig) -> Declares:
        sides: dict[str, Variant] = {"uniform": "paper", "uniform_one_sided": "released"}
        return Declares(
            active=options.scale > 0,  # without noise its wish for dropout remains: that is the control
            edit_order=10,  # after views of the input
            dropout=DropoutWish(hidden=0.0 if options.hidden_dropout == "off" else None),
            acts_in=options.passes,
            random_passes=options.scale > 0,
            description=Description(variant=sides.get(options.distribution), smallest_effect=options.scale or None),
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        layers = trainee.sites.layer_numbers("hype.layers", self.options.layers)
        if self.options.position in ("between_layers", "both"):
            trainee.hooks.on_layer_input(lambda tensor, site: self._perturb(tensor, site, 0), layers)
        if self.options.position in ("within_layers", "both"):
            trainee.hooks.on_after_attention(lambda tensor, site: self._perturb(tensor, site, 1), layers)

    def _perturb(self, tensor: Tensor, site: LayerSite, position: int) -> Tensor:
        """The tensor plus fp32 noise, which is a pure function of seed, step and site."""
        current, passes = self.trainee.current, self.options.passes
        if current is None:
            return tensor
        generator = self.trainee.generator("hype.noise", *current.key, site.index, position)
        noise = draw(tensor.shape, self.options.distribution, generator) * self.options.scale
        if passes is not None and any(name not in passes for name, _, _ in current.parts):
            keep = torch.zeros(tensor.shape[site.batch_dim], device=tensor.device)
            for start, stop in (rows for name, *rows in current.parts if name in passes):
                keep[start:stop] = 1
            noise = noise * keep.reshape([-1 if d == site.batch_dim else 1 for d in range(tensor.dim())])
        # The sum is taken in fp32: at 1e-5 it would vanish in half precision.
        return tensor.float() + noise

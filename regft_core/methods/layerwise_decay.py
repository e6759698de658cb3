"""Layer-wise learning-rate decay (Howard and Ruder, ACL 2018; Clark et al., ICLR 2020).

The learning rate shrinks by the factor ``decay`` from layer to layer on the way down, so that lower
layers stay closer to their pretrained weights. Head and pooler have the full rate.

Differences between paper and released code (``variant``; of ELECTRA, Clark et al.):
- paper: each layer has the rate of the layer above times ``decay``: the top layer decay, the embeddings
  decay^(N + 1), for N layers.
- released: the head counts two steps above the top layer: decay^2 for the top, decay^(N + 2) for embeddings.

Decisions:
- decay 0.9 is that of ELECTRA's large model; its base and small models take 0.8.
- what several layers share (relative positions) and projections behind the embeddings go with the embeddings;
  a final norm and the pooler with the head.
- BART: the decoder lies above the encoder; the embeddings, which both use, lie below all.
- ALBERT shares one layer; it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Description, Flip, Handed, Regulariser, StrictModel, Variant
from regft_core.hooks.declare import Trainee


class LayerwiseDecayConfig(StrictModel):
    variant: Variant = Field("paper", description="released: the head lies two steps above the top layer")
    decay: float = Field(0.9, gt=0, le=1, description="factor of the learning rate from a layer to the one below")
    shape: Literal["geometric", "flat"] = Field("geometric", description="flat: one rate, of the same mean (a control)")


def factors(depths: Mapping[str, int], layers: int, sizes: Mapping[str, int], options: Any) -> dict[str, float]:
    """Factor of the learning rate of every parameter.

    Args:
        depths: 0 for embeddings, 1 to ``layers``, ``layers + 1`` for head and pooler.
        sizes: number of entries of each parameter, for the mean of ``shape: flat``.
    """
    gap = 2 if options.variant == "released" else 1
    rates = {
        name: 1.0 if depth > layers else float(options.decay ** (layers - depth + gap))
        for name, depth in depths.items()
    }
    if options.shape == "flat":
        encoder = [name for name, depth in depths.items() if depth <= layers]
        mean = sum(sizes[name] * rates[name] for name in encoder) / sum(sizes[name] for name in encoder)
        rates.update(dict.fromkeys(encoder, mean))
    return rates


class LayerwiseDecay(Regulariser):
    name = "layerwise_decay"
    Config = LayerwiseDecayConfig
    off = {"decay": 1.0}
    controls = {"flat": Flip({"shape": "flat"}, "all layers have one rate, of the same mean")}
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "decay": "code: google-research/electra configure_finetuning.py:151; its large model, others 0.8 (line 56)",
        "shape": "ours: geometric is the method, flat its control",
    }

    @classmethod
    def declare(cls, options: LayerwiseDecayConfig) -> Declares:
        return Declares(
            active=options.decay < 1, trains_encoder=True, description=Description(refused_architectures=("albert",))
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.heads import depths

        sizes = {name: parameter.numel() for name, parameter in trainee.named_raw()}
        depth_of = depths(trainee.model, trainee.sites, trainee.plain_names)
        self._factors = factors(depth_of, len(trainee.sites.layers), sizes, self.options)

    def learning_rate_factors(self) -> Mapping[str, float]:
        return self._factors

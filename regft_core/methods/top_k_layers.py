"""Fine-tuning of the top K layers (Houlsby et al., ICML 2019, as a baseline; Yuan et al., ACL 2023, table 5).

The head, what stands between encoder and head (a pooler, a final norm) and the top ``layers`` layers are
trained; everything below keeps its pretrained weights. No code was released with either.

Decisions:
- embeddings are frozen unless ``embeddings: true``, and with them what several layers share (relative positions).
- frozen tensors are not in the optimiser, so weight decay does not move them either. Their layers keep dropout.
- BART: layers are counted from the top of the decoder down into the encoder.
- ALBERT shares one layer; it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Description, Flip, Handed, Regulariser, StrictModel
from regft_core.hooks.declare import Trainee


class TopKLayersConfig(StrictModel):
    layers: Annotated[int, Field(ge=0)] | Literal["all"] = Field(1, description="how many are trained (K)")
    embeddings: bool = Field(False, description="whether embeddings and what layers share are trained")
    pooler: bool = Field(True, description="whether what stands between the last layer and the head is trained")
    end: Literal["top", "bottom"] = Field("top", description="bottom: the lowest layers are trained (a control)")


class TopKLayers(Regulariser):
    name = "top_k_layers"
    Config = TopKLayersConfig
    off = {"layers": "all", "embeddings": True, "pooler": True}
    controls = {
        "bottom": Flip(
            {"end": "bottom"},
            "as many layers are trained, from the bottom",
            when=lambda options: options.layers not in (0, "all"),
        )
    }
    sources = {
        "layers": "ours: the smallest that trains any layer",
        "embeddings": "ours: frozen like the layers above them",
        "pooler": "ours: trained, as what stands above the top layer",
        "end": "ours: top is the method, bottom its control",
    }

    @classmethod
    def declare(cls, options: TopKLayersConfig) -> Declares:
        nothing = options.layers == 0 and not options.embeddings and not options.pooler
        return Declares(
            active=options.layers != "all" or not options.embeddings or not options.pooler,
            freezes_encoder=nothing,
            trains_encoder=not nothing,
            description=Description(refused_architectures=("albert",)),
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.heads import BELOW, depths

        depth_of = depths(trainee.model, trainee.sites, trainee.plain_names)
        count = len(trainee.sites.layers)
        wanted = count if self.options.layers == "all" else self.options.layers
        if wanted > count:
            raise ModelError(
                "layer-out-of-range",
                f"top_k_layers.layers: {wanted} was given, but this {trainee.sites.architecture} has {count} layers; "
                f"give 0 to {count}, or all",
            )
        chosen = range(count - wanted + 1, count + 1) if self.options.end == "top" else range(1, wanted + 1)
        head = frozenset(trainee.sites.head)
        for name, depth in depth_of.items():
            if name in head or depth in chosen:
                continue
            if (depth == BELOW and self.options.embeddings) or (depth > count and self.options.pooler):
                continue
            trainee.raw(name).requires_grad_(False)

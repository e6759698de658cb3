"""Re-init: draw the top layers anew before fine-tuning (Zhang et al., ICLR 2021).

The top ``layers`` layers, and with them the pooler, forget their pretraining: matrices are drawn from
N(0, initializer_range), biases set to 0, norms scale by 1. The paper's other two pieces of advice, bias-corrected
Adam and longer training, belong to the protocol (bias correction is always on; ``long_training.yaml``).

Decisions:
- the pooler is BERT's, or what else stands pretrained between encoder and head (ModernBERT). A pooler that the
  checkpoint does not hold is drawn with the head, as in every arm; so are the heads of families without a pooler.
- BART: the top layers are the decoder's, at most all of them.
- ALBERT shares one layer, which has no top; it is refused.
- drawn layers are new like the head: methods that pull toward pretrained weights (L2-SP, RecAdam) leave them alone.
  For methods that mix with other weights (Mixout, weight mixup, DPS, WiSE-FT), those of a drawn layer are its draw.
- each layer has a random stream of its own: the top layer is the same whether 1 or 5 are drawn.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Description, Flip, Regulariser, StrictModel
from regft_core.hooks.declare import Trainee
from regft_core.lazy import torch
from regft_core.models.architectures import architecture_of
from regft_core.rng import derive


class ReInitConfig(StrictModel):
    layers: int = Field(2, ge=0, description="how many of the top layers are drawn anew")
    pooler: bool = Field(True, description="whether a pretrained pooler is drawn anew with them")


class ReInit(Regulariser):
    name = "re_init"
    Config = ReInitConfig
    off = {"layers": 0, "pooler": False}
    controls = {"pooler_only": Flip({"layers": 0}, "no layer is drawn anew")}
    sources = {
        "layers": "ours: 2 of 6 layers; 5 of 24 in asappresearch/revisit-bert-finetuning sample_commands/reinit.sh:11",
        "pooler": "code: asappresearch/revisit-bert-finetuning sample_commands/reinit.sh:11",
    }

    @classmethod
    def declare(cls, options: ReInitConfig) -> Declares:
        return Declares(
            active=options.layers > 0 or options.pooler,
            edits=("weights",),
            draws_anew=True,
            edit_order=-10,  # noise on weights comes after: it is scaled to the weights that training starts from
            description=Description(refused_architectures=("albert",)),
        )

    def edit_weights(self, trainee: Trainee) -> None:
        from regft_core.models.load import draw_parameters

        modules = self._layers(trainee) | (self._pooler(trainee) if self.options.pooler else {})
        for name, module in modules.items():
            draw_parameters([module], trainee.model.config, derive(trainee.seed, trainee.phase, "re_init", name))
            trainee.renew(f"{name}.{parameter}" for parameter, _ in module.named_parameters())

    def _layers(self, trainee: Trainee) -> dict[str, torch.nn.Module]:
        sites = trainee.sites
        top = [site for site in sites.layers if site.stack == sites.layers[-1].stack]
        if self.options.layers > len(top):
            raise ModelError(
                "layer-out-of-range",
                f"re_init.layers: {self.options.layers} was given, but the {top[-1].stack} of this "
                f"{sites.architecture} has {len(top)} layers; give 0 to {len(top)}",
            )
        return {site.name: site.module for site in top[len(top) - self.options.layers :]}

    def _pooler(self, trainee: Trainee) -> dict[str, torch.nn.Module]:
        """Return the pretrained modules between the encoder and the new head."""
        from regft_core.models.sites import before_head

        config: Any = trainee.model.config
        row = architecture_of(config.model_type)
        paths = list(before_head(trainee.model, row))
        if row.pooler:
            paths.append(f"{trainee.model.base_model_prefix}.{row.pooler}")
        modules = dict(trainee.model.named_modules())
        new = frozenset(trainee.sites.head)
        return {
            path: modules[path]
            for path in paths
            if path in modules and any(f"{path}.{name}" not in new for name, _ in modules[path].named_parameters())
        }

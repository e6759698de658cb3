"""LoRA: low-rank additions to frozen matrices (Hu et al., ICLR 2022), as in the PEFT library.

The encoder is frozen; each chosen linear map W x becomes W x + (alpha / rank) B A dropout(x). B starts at
0, A uniformly between -1 and 1 over the root of its width. A, B and the head are trained; a pretrained
pooler is frozen. At the end the product is folded into W, so the result is a plain model.

Decisions:
- targets: query and value of every layer, PEFT's default for BERT-like models; where query, key and value are
  one matrix (DeBERTa's in_proj, ModernBERT's Wqkv), that matrix. BART's are those of all its attentions.
- everything that is newly drawn is trained (PEFT leaves DeBERTa's pooler as it was drawn).
- A and B are decayed like every other matrix.
- XLNet's projections are raw tensors, not linear maps; it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Description, Handed, Regulariser, StrictModel
from regft_core.hooks.declare import Tensor, Trainee
from regft_core.lazy import torch
from regft_core.names import suggestion
from regft_core.schema import SomeItems

if TYPE_CHECKING:
    from regft_core.models.weight_views import LowRank

#: Names that the families give to the linear maps of query and value, or of all three together.
QUERY_VALUE = (
    *("query", "value", "query_proj", "value_proj", "q_proj", "v_proj", "q_lin", "v_lin", "q", "v"),
    *("in_proj", "Wqkv"),
)


class LoraConfig(StrictModel):
    rank: int = Field(8, ge=0, le=1024, description="0 trains the head alone (a control)")
    alpha: float = Field(16.0, gt=0, description="the product is scaled by alpha / rank")
    dropout: float = Field(0.1, ge=0, lt=1, description="on what enters A")
    scaling: Literal["rank", "root"] = Field("rank", description="root: alpha over the root of the rank")
    targets: SomeItems[str] | None = Field(
        None, description="last parts of the names of linear modules inside the layers; null: query and value"
    )


class Lora(Regulariser):
    name = "lora"
    Config = LoraConfig
    off = None  # the encoder is frozen at any strength
    sources = {
        "rank": "paper: Somayajula et al. 2024, appendix F",
        "alpha": "paper: Somayajula et al. 2024, appendix F",
        "dropout": "paper: Somayajula et al. 2024, appendix F",
        "scaling": "code: huggingface/peft src/peft/tuners/lora/config.py:643",
        "targets": "code: huggingface/peft src/peft/utils/constants.py:78",
    }

    @classmethod
    def declare(cls, options: LoraConfig) -> Declares:
        return Declares(
            edits=("structure",) if options.rank else (),
            freezes_encoder=True,
            random_passes=options.rank > 0 and options.dropout > 0,
            description=Description(refused_architectures=("xlnet",)),
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.weight_views import LowRank

        self.additions: dict[str, LowRank] = {}
        self._handles: list[Any] = []
        rank = self.options.rank
        targets = self._targets(trainee) if rank else {}
        trainee.freeze_encoder()
        for name, module in targets.items():
            self.additions[name] = LowRank(
                module.in_features,
                module.out_features,
                rank=rank,
                scale=self.options.alpha / (rank if self.options.scaling == "rank" else rank**0.5),
                dropout=self.options.dropout,
                generator=trainee.generator("lora.initial", name),
            )
            self._handles.append(module.register_forward_hook(partial(self._add, self.additions[name])))
        if targets:  # parameter names have dots between modules and slashes in checkpoints
            additions = {name.replace(".", ":"): addition for name, addition in self.additions.items()}
            trainee.attach("lora", torch.nn.ModuleDict(additions))

    def _targets(self, trainee: Trainee) -> dict[str, torch.nn.Linear]:
        """Linear modules to add to, by path; ModelError when one of the chosen names is nowhere."""
        linear = {
            name: module
            for name, module in trainee.model.named_modules()
            if isinstance(module, torch.nn.Linear) and name.startswith(trainee.layer_prefixes)
        }
        ends = {name.rsplit(".", 1)[1] for name in linear}
        for wanted in self.options.targets or ():
            if wanted not in ends:
                hint = suggestion(wanted, sorted(ends), "there are")
                raise ModelError(
                    "unknown-module", f"lora.targets: no linear module inside the layers is called '{wanted}'; {hint}"
                )
        chosen = self.options.targets or QUERY_VALUE
        return {name: module for name, module in linear.items() if name.rsplit(".", 1)[1] in chosen}

    def _add(self, addition: LowRank, module: torch.nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return output + addition.addition(args[0], self.trainee.model.training)

    def export(self, trainee: Trainee) -> None:
        for handle in self._handles:
            handle.remove()
        for name, addition in self.additions.items():
            weight = trainee.raw(f"{name}.weight")
            weight.data.add_(addition.product())
        self.additions = {}

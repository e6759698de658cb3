"""Prefix-tuning: trained keys and values before those of every layer (Li and Liang, ACL 2021; P-tuning v2).

The encoder is frozen. Every attention sees ``tokens`` more keys and values, rows of one table without
a projection in front of it, as in the PEFT library. Table and head are trained; a pretrained pooler is
frozen. The logits of the first step are not those of the base model, for the rows start at random.

Decisions:
- ``positions: kept``: tokens keep the positions they had. ``shifted`` is what PEFT does to BERT, RoBERTa
  and ELECTRA: tokens are numbered from ``tokens`` on, so inputs must be that much shorter.
- the table starts from N(0, initial_std^2), PEFT's default of 1; it is decayed like every other matrix.
- a plain model cannot hold the table: evaluation puts it back, an ordinary export is refused.
- families whose attention is their own code (DeBERTa, MPNet, XLNet) and BART (three attentions) are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Description, Handed, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Tensor, Trainee
from regft_core.lazy import torch

#: Families in which PEFT numbers the tokens after the prefix.
SHIFTABLE = ("bert", "electra", "roberta")


class PrefixTuningConfig(StrictModel):
    tokens: int = Field(20, ge=1, le=1024, description="virtual keys and values per layer")
    initial_std: float = Field(1.0, ge=0, description="standard deviation of the table at the start")
    positions: Literal["kept", "shifted"] = Field(
        "kept", description="shifted: tokens are numbered after the prefix, as PEFT does for BERT-like models"
    )


class PrefixTuning(Regulariser):
    name = "prefix_tuning"
    Config = PrefixTuningConfig
    off = None  # the encoder is frozen at any strength
    sources = {
        "tokens": "paper: Somayajula et al. 2024, appendix F",
        "initial_std": "code: huggingface/peft src/peft/tuners/prefix_tuning/model.py:79; a plain embedding table",
        "positions": "ours: the text keeps the positions of its pretraining; PEFT shifts them",
    }

    @classmethod
    def declare(cls, options: PrefixTuningConfig) -> Declares:
        return Declares(
            edits=("structure",),
            edit_order=1,  # after LoRA's additions, which it does not touch
            freezes_encoder=True,
            description=Description(
                refused_architectures=("bart", "deberta", "deberta-v2", "gemma3_text", "mpnet", "qwen3", "xlnet")
            ),
        )

    @classmethod
    def check_options(cls, options: PrefixTuningConfig, phase: Phase) -> list[str]:
        return [] if phase.name == "finetune" else ["its table is not in the weights that a later phase starts from"]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.virtual_tokens import key_value_width, require_family

        require_family(self.name, trainee.sites.architecture)
        shape = (self.options.tokens, 2 * len(trainee.sites.layers) * key_value_width(trainee.model.config))
        generator = trainee.generator("prefix_tuning.initial")
        table = torch.randn(shape, generator=generator, device=trainee.device) * self.options.initial_std
        trainee.freeze_encoder()
        self._put(trainee, table)

    def _put(self, trainee: Trainee, table: Tensor) -> None:
        from regft_core.models.virtual_tokens import KeyValuePrefixes

        self.table = torch.nn.Parameter(table)
        trainee.attach("prefix_tuning", torch.nn.ParameterDict({"table": self.table}))
        self.prefixes = KeyValuePrefixes(trainee.model, trainee.sites, trainee.hooks, self.table)
        self._shift = None
        if self.options.positions == "shifted":
            if trainee.sites.architecture not in SHIFTABLE:
                raise ModelError(
                    "encoder-does-not-fit",
                    f"prefix_tuning.positions: shifted is defined for {', '.join(SHIFTABLE)}, not for "
                    f"{trainee.sites.architecture}; use kept",
                )
            base: Any = trainee.model.base_model
            self._shift = base.register_forward_pre_hook(self._number, with_kwargs=True)

    def _number(self, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Positions that begin after the prefix."""
        from regft_core.models.virtual_tokens import require_room, text_positions

        ids = args[0] if args else kwargs["input_ids"]
        require_room(self.name, base, ids.shape[1], self.options.tokens)
        return args, {**kwargs, "position_ids": text_positions(base, ids) + self.options.tokens}

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        return {"table": self.table}

    def rebuild(self, trainee: Trainee, kept: Mapping[str, Tensor]) -> None:
        self._put(trainee, kept["table"].to(trainee.device))

    def export(self, trainee: Trainee) -> None:
        self.prefixes.remove()
        if self._shift is not None:
            self._shift.remove()

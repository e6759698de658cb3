"""Prompt tuning: trained vectors before the word embeddings (Lester et al., EMNLP 2021), as in the PEFT library.

The encoder is frozen; ``tokens`` vectors stand before the words of every input, at positions 0 to
tokens - 1 and in segment 0. They and the head are trained; a pretrained pooler is frozen.

The head of an encoder reads the first position, which is now a virtual token: ``reads: first`` is that
literal form, what PEFT does. ``reads: text`` lets it read the first token of the text again (a variant
of ours). Heads that pool over the text's tokens (``model.pooling: cls`` or ``mean``) do so in both.

Decisions:
- ``start: normal`` is PEFT's default, N(0, 1), far larger than word embeddings; ``vocabulary`` takes the
  embeddings of as many words, drawn at random.
- the vectors are decayed like every other matrix.
- a plain model cannot hold them: evaluation puts them back, an ordinary export is refused.
- padding on the left stays before the vectors. BART (its decoder reads ids) and XLNet (its own head reads the last
  position) are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Description, Handed, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Tensor, Trainee
from regft_core.lazy import torch


class PromptTuningConfig(StrictModel):
    tokens: int = Field(20, ge=1, le=1024, description="virtual tokens")
    reads: Literal["first", "text"] = Field(
        "first", description="what the family's own head reads: the first position, or the text's first token"
    )
    start: Literal["normal", "vocabulary"] = Field("normal", description="N(0, 1), or embeddings of random words")


class PromptTuning(Regulariser):
    name = "prompt_tuning"
    Config = PromptTuningConfig
    off = None  # the encoder is frozen at any strength
    sources = {
        "tokens": "paper: Somayajula et al. 2024, appendix F",
        "reads": "code: huggingface/peft src/peft/peft_model.py:1922; the prompt comes first, and is read",
        "start": "code: huggingface/peft src/peft/tuners/prompt_tuning/config.py:49",
    }

    @classmethod
    def declare(cls, options: PromptTuningConfig) -> Declares:
        return Declares(
            edits=("structure",),
            edit_order=2,
            freezes_encoder=True,
            moves_tokens="everywhere" if options.reads == "first" else "inside",
            description=Description(refused_architectures=("bart", "xlnet")),
        )

    @classmethod
    def check_options(cls, options: PromptTuningConfig, phase: Phase) -> list[str]:
        return [] if phase.name == "finetune" else ["its vectors are not in the weights that a later phase starts from"]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        trainee.freeze_encoder()
        self._put(trainee, self._initial(trainee))

    def _initial(self, trainee: Trainee) -> Tensor:
        words, count = trainee.sites.word_embedding, self.options.tokens
        drawn: Any = {"generator": trainee.generator("prompt_tuning.initial"), "device": trainee.device}
        if self.options.start == "vocabulary":
            with torch.no_grad():  # looked up: Gemma scales its embeddings there
                return words(torch.randint(words.num_embeddings, (count,), **drawn)).clone()
        return torch.randn(count, words.embedding_dim, **drawn)

    def _put(self, trainee: Trainee, table: Tensor) -> None:
        from regft_core.models.virtual_tokens import Prompts

        self.table = torch.nn.Parameter(table)
        trainee.attach("prompt_tuning", torch.nn.ParameterDict({"table": self.table}))
        self.prompts = Prompts(trainee, self.table, method=self.name, strip=self.options.reads == "text")
        if self.options.reads == "text" and self.prompts.pooled_over_text:
            self.marks.append(
                "prompt_tuning: 'reads: text' changes nothing, this head pools over the text's tokens anyway"
            )

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        return {"table": self.table}

    def rebuild(self, trainee: Trainee, kept: Mapping[str, Tensor]) -> None:
        self._put(trainee, kept["table"].to(trainee.device))

    def export(self, trainee: Trainee) -> None:
        self.prompts.remove()

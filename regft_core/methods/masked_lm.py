"""Masked language modelling on the phase's text: post-training, a head, or a filler.

A phase of its own before fine-tuning: ``trains: all`` continues pretraining on the task's text
(post-training; Gururangan et al., 2020), or trains the model that Mask-tuning's two-phase
ablation fills sentences with; ``trains: head`` trains a masked-LM head alone over the frozen
encoder, for checkpoints that come without one, and does nothing where there is one.

- masks are those of ``mask_tuning``, drawn anew in every step; the loss is the mean over all masked positions.
- the classifier's head has no part in the loss and stays as it was drawn.
- a checkpoint without a masked-LM head starts ``trains: all`` from a drawn one; the result is marked.
- BART predicts the token of a position by its decoder there, which reads the masked input moved right by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Cost, Declares, Description, Handed, ParameterGroup, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Step, Tensor, Trainee
from regft_core.lazy import torch
from regft_core.models.masking import TRAINED_HEAD, masked_positions, own_parameters, with_tokens
from regft_core.rng import derive


class MaskedLmConfig(StrictModel):
    mask_rate: float = Field(0.15, gt=0, lt=1, description="share of the maskable tokens that are masked")
    selection: Literal["count", "bernoulli"] = Field("count", description="a fixed number per input, or each by chance")
    replacement: Literal["mask", "bert"] = Field(
        "mask", description="mask: every chosen token becomes [MASK]; bert: 80% do, 10% become a random token, 10% stay"
    )
    trains: Literal["all", "head"] = Field("all", description="head: the masked-LM head alone, if there is none")


class MaskedLm(Regulariser):
    name = "masked_lm"
    Config = MaskedLmConfig
    off = None  # without its loss the phase has none
    sources = {
        "mask_rate": "code: lemon0830/TDT TDT/examples/run_lm_finetuning.py:376",
        "selection": "ours: as in mask_tuning, so that one token of a short text is masked at least",
        "replacement": "paper: Ghanbarzadeh et al. 2023, section 2.1; every chosen token becomes [MASK]",
        "trains": "ours: post-training is the common use",
    }

    @classmethod
    def declare(cls, options: MaskedLmConfig) -> Declares:
        return Declares(
            passes=("masked",),
            trains_on_task=False,
            freezes_encoder=options.trains == "head",
            description=Description(
                # A head alone needs no backward pass through the frozen encoder.
                cost=Cost(1, 1) if options.trains == "all" else Cost(1, 0),
                refused={"windows": "tokens that windows share would be predicted several times"},
                refused_architectures=("gemma3_text", "qwen3"),
                exempt={"padding": "which tokens are masked is drawn for the padded shape"},
            ),
        )

    @classmethod
    def check_options(cls, options: MaskedLmConfig, phase: Phase) -> list[str]:
        if phase.name == "finetune":
            return ["its loss knows no labels, so nothing would learn the task; use it in an earlier phase"]
        return []

    def skip(self, trainee: Trainee) -> str | None:
        if self.options.trains == "head" and self._head(trainee)[1]:
            return "the checkpoint has a masked-LM head of its own"
        return None

    def _head(self, trainee: Trainee) -> tuple[Any, bool]:
        from regft_core.models.load import load_masked_lm_head

        if getattr(trainee.model, "pretrained_head", False):  # it answers at a mask later, by this very head
            return trainee.model.masked_lm_head, True
        return load_masked_lm_head(trainee.source, trainee.model, head_seed=derive(trainee.seed, "masked_lm.head"))

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.mask_token = trainee.mask_token(self.name)
        head, pretrained = self._head(trainee)
        if not pretrained:
            self.marks.append(f"{self.name}: {TRAINED_HEAD}")
        if self.options.trains == "head":
            if not own_parameters(head, trainee.model):
                raise ModelError(
                    "masked-lm-untrainable",
                    f"masked_lm: the checkpoint '{trainee.source.name}' has no masked-LM head, and that of "
                    f"{trainee.sites.architecture} has no weights of its own beside the frozen embedding, so trains: "
                    "head has nothing to train; use a checkpoint that has one, or trains: all",
                )
            trainee.model.requires_grad_(False)
        # The classifier's head has no part in the loss; frozen, no optimiser can decay it and no noise reaches it.
        for name in trainee.sites.head:
            trainee.raw(name).requires_grad_(False)
        self.head = trainee.attach("masked_lm", head)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Biases and norms of the head are not decayed, as elsewhere."""
        return self.trainee.undecayed("masked_lm")

    def backward(self, step: Step) -> Tensor:
        """The mean cross-entropy of the masked tokens; 0 where a batch has nothing to mask."""
        positions = masked_positions(self, step)
        masked = with_tokens(step.batch, positions, self._replacements(step, positions))
        _, hidden = step.forward("masked", batch=masked, hidden=True)
        logits = self.head(hidden[positions].float()).float()
        # An empty sum keeps the graph alive when a batch has nothing to mask.
        loss = torch.nn.functional.cross_entropy(logits, step.batch.input_ids[positions], reduction="sum")
        loss = loss / max(1, positions[0].numel())
        step.backward(loss, passes=1.0 if self.options.trains == "all" else 0.0)
        self.diagnostics.read(step, loss=loss)
        return loss.detach()

    def _replacements(self, step: Step, positions: tuple[Tensor, Tensor]) -> Tensor | int:
        if self.options.replacement == "mask":
            return self.mask_token
        ids = step.batch.input_ids[positions]
        generator = step.generator("masked_lm.replacement")
        draws = torch.rand(ids.shape, generator=generator, device=ids.device)
        others = torch.randint(len(self.trainee.tokenizer), ids.shape, generator=generator, device=ids.device)
        config: Any = self.trainee.model.config
        if config.is_encoder_decoder:  # the head, whose pass this is, too, reads the end of the text, which has one
            others = others.masked_fill(others == config.eos_token_id, self.mask_token)
        return torch.where(draws < 0.8, torch.full_like(ids, self.mask_token), torch.where(draws < 0.9, others, ids))

    def hand(self, trainee: Trainee) -> dict[str, Tensor]:
        """The masked-LM head without the embedding that it shares with the encoder."""
        return {f"head/{name}": value for name, value in own_parameters(self.head, trainee.model).items()}

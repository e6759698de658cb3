"""Mask-tuning (Ghanbarzadeh et al., 2023).

Each step masks 5 % of the tokens, lets the encoder's masked-LM head predict them, and
classifies the sentence with the predictions filled in. The loss is ``alpha`` times the
masked-LM loss plus ``1 - alpha`` times the task loss. The clean sentence is not trained on.

No code was released. What the paper leaves open, and what is done here:
- one encoder with two heads or two models: one (``coupling: joint``); ``separate`` trains a
  second model, ``filler`` takes one trained beforehand and freezes it (ablations).
- fill: the most probable token; ``sample`` draws one. Predicted special tokens are not
  filtered, but counted. No gradient passes through the filled tokens.
- number of masks: max(1, round(rate * maskable tokens)) per input; ``bernoulli`` draws each.
- maskable is what the tokenizer did not add and what is not in a task's keyword segment; the
  budget is that of the whole input, pairs included (encoded separately: of each text). No whole-word
  masking.
- the masked-LM loss is the mean over all masked positions of a batch; a batch without any has
  none. Both passes drop out independently, the filled one like plain fine-tuning.
- the losses go backward one after the other, which gives the same gradient for less memory.
- regression: the task loss is the squared error (the paper has no regression task).
- a checkpoint without a masked-LM head takes one that an earlier phase trained on the task's
  text, the encoder frozen (``head: <phase>``, regulariser ``masked_lm``); the result is marked.
- ``filler: <phase>`` (the paper's ablation without joint training) fills with a masked LM that
  this phase trained, frozen, anew in every step; the classifier starts from the checkpoint.
- BART predicts the token of a position by its decoder there, which reads the masked input moved right by one. Its
  end-of-text token is never filled in: the classification head reads the only one of a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from regft_core.errors import ModelError
from regft_core.hooks.base import Cost, Declares, Description, Flip, Handed, ParameterGroup, Regulariser, StrictModel
from regft_core.hooks.declare import LOG_EVERY, Batch, Need, Step, Tensor, Trainee
from regft_core.lazy import torch
from regft_core.models.masking import TRAINED_HEAD, masked_positions, own_parameters, take_head, with_tokens
from regft_core.rng import derive
from regft_core.schema import Name


class MaskTuningConfig(StrictModel):
    alpha: float = Field(0.6, ge=0, le=1, description="weight of the masked-LM loss; the task loss has 1 - alpha")
    masked_loss: bool = Field(True, description="false: no masked-LM loss; the task loss keeps its weight (a control)")
    mask_rate: float = Field(0.05, ge=0, lt=1, description="share of the maskable tokens that are masked")
    selection: Literal["count", "bernoulli"] = Field("count", description="a fixed number per input, or each by chance")
    fill: Literal["argmax", "sample", "mask"] = Field(
        "argmax", description="predicted tokens; mask: the classifier sees [MASK] itself (a control)"
    )
    coupling: Literal["joint", "separate"] = Field("joint", description="one encoder, or two trained side by side")
    head: Name | None = Field(
        None, description="phase that trained a masked-LM head, used where the checkpoint has none of its own"
    )
    filler: Name | None = Field(None, description="phase that trained the masked LM that fills in; it is frozen")

    @model_validator(mode="after")
    def _consistent(self) -> MaskTuningConfig:
        wrong = []
        if self.alpha > 0 and self.mask_rate == 0:
            wrong.append(f"mask_rate: 0 leaves nothing to predict, but alpha is {self.alpha}; set alpha: 0 as well")
        if self.fill == "mask" and self.alpha > 0:
            wrong.append(f"fill: mask has no masked-LM loss, but alpha is {self.alpha}; set alpha: 0")
        for name in ("head", "filler"):
            if self.fill == "mask" and getattr(self, name) is not None:
                wrong.append(f"fill: mask uses no predictions, so {name} would do nothing; remove it")
        if self.fill == "mask" and self.coupling != "joint":
            wrong.append(f"fill: mask uses no predictions, so coupling: {self.coupling} would do nothing; remove it")
        if self.filler is not None and self.alpha > 0:
            wrong.append(f"filler is frozen, so there is no masked-LM loss; set alpha: 0, not {self.alpha}")
        if self.filler is not None and (self.head is not None or self.coupling != "joint"):
            wrong.append("filler brings a model and a head of its own; remove head and coupling")
        if wrong:
            raise ValueError("\n".join(wrong))
        return self


class MaskTuning(Regulariser):
    name = "mask_tuning"
    Config = MaskTuningConfig
    off = {"alpha": 0.0, "mask_rate": 0.0}
    controls = {
        "no_masked_loss": Flip(
            {"masked_loss": False},
            "masked tokens are filled in without a masked-LM loss",
            when=lambda options: options.alpha > 0,
        )
    }
    sources = {
        "alpha": "paper: section 3.2; of SST-2, MNLI has 0.7 and QQP 0.8",
        "masked_loss": "paper: section 2.1, equation 1; false is its control",
        "mask_rate": "paper: section 2.1",
        "selection": "ours: the paper gives a share only; a fixed number masks at least one token of a short text",
        "fill": "ours: argmax; the paper speaks of the predicted tokens (section 2.1) and states no rule",
        "coupling": "ours: one encoder; with two the losses would not meet, see the decisions",
        "head": "ours: needed for checkpoints without a masked-LM head only",
        "filler": "paper: section 5, an ablation",
    }

    @classmethod
    def declare(cls, options: MaskTuningConfig) -> Declares:
        needs: dict[str, Need] = {}
        if options.head is not None:
            needs[options.head] = "state"
        if options.filler is not None:
            needs[options.filler] = "weights"
        fills = options.fill != "mask"
        return Declares(
            active=options.alpha > 0 or options.mask_rate > 0,
            needs=needs,
            passes=("masked", "filled") if fills else ("masked",),
            description=Description(
                cost=Cost(2, 2 if options.alpha > 0 and options.masked_loss else 1) if fills else Cost(),
                refused={
                    "windows": "tokens that windows share would be predicted several times",
                    "mask": "it masks tokens of its own, so a row has several masks",
                },
                refused_architectures=("gemma3_text", "qwen3"),
                exempt={"limit": "one token is masked at least", "padding": "masks are drawn for the padded shape"},
            ),
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.second: Any = None
        self.mask_token = trainee.mask_token(self.name)
        if self.options.fill == "mask":
            return
        if self.options.filler is not None or self.options.coupling == "separate":
            self._add_second_encoder(trainee, handed)
        else:
            self._attach_head(trainee, handed)
        if not self.pretrained:
            self.marks.append(f"{self.name}: {TRAINED_HEAD}")

    def _attach_head(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.load import load_masked_lm_head

        seed = derive(trainee.seed, "mask_tuning.head")
        head, self.pretrained = load_masked_lm_head(trainee.source, trainee.model, head_seed=seed)
        self.head = trainee.attach("mask_tuning", head)
        if not self.pretrained:
            take_head(self, self.head, trainee.model, handed)

    def _add_second_encoder(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.load import SecondEncoder

        seed, dropout = derive(trainee.seed, "mask_tuning.head"), self.setting.training.dropout
        self.second = SecondEncoder(trainee.source, dropout=dropout, head_seed=seed).to(trainee.device)
        self.pretrained = self.second.pretrained
        self.head = self.second.head
        head = own_parameters(self.head, self.second.encoder)
        if self.options.filler is None:
            if not self.pretrained:
                take_head(self, self.head, self.second.encoder, handed)
            trainee.attach("mask_tuning", self.second)
            return
        phase = handed[self.options.filler]
        state = phase.of("masked_lm")
        if any(f"head/{name}" not in state for name in head):
            raise ModelError(
                "masked-lm-missing",
                f"mask_tuning: phase '{self.options.filler}' trained no masked LM to fill with; give it the "
                "regulariser masked_lm: {trains: all} (see pipelines/methods/mask_tuning_two_phase.yaml)",
            )
        prefix = f"{trainee.model.base_model_prefix}."
        with torch.no_grad():
            for name, parameter in self.second.encoder.named_parameters():
                parameter.copy_(phase.weights[prefix + name])
            for name, parameter in head.items():
                parameter.copy_(state[f"head/{name}"])
        # Frozen, so that checkpoints need not hold it: the phase's weights restore it.
        self.second.requires_grad_(False).eval()

    def parameter_groups(self) -> list[ParameterGroup]:
        """Biases and norms of the head (and of a second encoder) are not decayed, as elsewhere."""
        return self.trainee.undecayed("mask_tuning")

    def backward(self, step: Step) -> Tensor:
        """The masked pass with its loss, then the filled pass with the task's (equation 1)."""
        positions = masked_positions(self, step)
        if self.options.fill == "mask":
            masked = with_tokens(step.batch, positions, self.mask_token)
            loss = step.task_loss(step.forward("masked", batch=masked))
            step.backward(loss)
            return loss.detach()
        alpha = self.options.alpha
        batch, total = step.batch, 0.0
        if positions[0].numel() > 0:
            learns = alpha > 0 and self.options.masked_loss
            with torch.set_grad_enabled(learns):
                logits = self.masked_logits(step, positions)
                targets = step.batch.input_ids[positions]
                masked_loss = torch.nn.functional.cross_entropy(logits, targets)
            if learns:
                step.backward(alpha * masked_loss)
                total = alpha * masked_loss.detach()
            predicted = self.filling(step, logits.detach())
            batch = with_tokens(step.batch, positions, predicted)
            self._log(step, masked_loss, predicted, targets)
        loss = (1 - alpha) * step.task_loss(step.forward("filled", batch=batch))
        step.backward(loss)
        return total + loss.detach()

    def masked_logits(self, step: Step, positions: tuple[Tensor, Tensor]) -> Tensor:
        """Vocabulary logits ``[masked positions, V]`` from the masked input, in training mode."""
        masked = with_tokens(step.batch, positions, self.mask_token)
        if self.second is not None:
            hidden = self._second_pass(step, masked)
        else:
            # Another draw than that of the filled pass, whose dropout is that of plain fine-tuning.
            _, hidden = step.forward("masked", batch=masked, draw=1, hidden=True)
        return self.head(hidden[positions].float()).float()

    def _second_pass(self, step: Step, masked: Batch) -> Tensor:
        from regft_core.models.heads import autocast

        key = ("dropout", self.trainee.phase, "mask_tuning.second", step.index, step.micro)
        torch.manual_seed(derive(self.trainee.seed, *key))
        step.forward_passes += 1
        with autocast(self.trainee.device, step.setting.training.precision):
            return self.second(masked)

    def filling(self, step: Step, logits: Tensor) -> Tensor:
        """Token ids ``[masked positions]`` to fill in."""
        config: Any = self.trainee.model.config
        if config.is_encoder_decoder:  # the head reads the end of the text, which has one
            end = torch.tensor([config.eos_token_id], device=logits.device)
            logits = logits.index_fill(-1, end, -torch.inf)
        if self.options.fill == "argmax":
            return logits.argmax(-1)
        # As torch.multinomial draws one, which would first look whether the probabilities are valid.
        probabilities = logits.softmax(-1)
        waiting = torch.empty_like(probabilities).exponential_(generator=step.generator("mask_tuning.fill"))
        return (probabilities / waiting).argmax(-1)

    def _log(self, step: Step, loss: Tensor, predicted: Tensor, targets: Tensor) -> None:
        if step.index % LOG_EVERY == 0:
            ids = torch.tensor(self.trainee.tokenizer.all_special_ids, device=predicted.device)
            special = torch.isin(predicted, ids)
            changed = (predicted != targets).float().mean()
            self.diagnostics.read(
                step, changed_share=changed, special_share=special.float().mean(), masked_lm_loss=loss
            )

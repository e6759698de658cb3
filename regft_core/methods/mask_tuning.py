"""Mask-tuning (Ghanbarzadeh et al., 2023).

Each step masks 5 % of the tokens, lets the encoder's masked-LM head predict them, and
classifies the sentence with the predictions filled in. The loss is ``alpha`` times the
masked-LM loss plus ``1 - alpha`` times the task loss. The clean sentence is not trained on.

No code was released. What the paper leaves open, and what is done here:
- one encoder with two heads or two models: one (``coupling: joint``); ``separate`` trains a
  second model, ``two_phase`` trains it beforehand and freezes it (ablations).
- fill: the most probable token; ``sample`` draws one. Predicted special tokens are not
  filtered, but counted. No gradient passes through the filled tokens.
- number of masks: max(1, round(rate * maskable tokens)) per input; ``bernoulli`` draws each.
- maskable is what the tokenizer did not add and what is not in a task's keyword segment; the
  budget is that of the whole input, pairs included. No whole-word masking.
- the masked-LM loss is the mean over all masked positions of a batch; a batch without any has
  none. Both passes drop out independently, the filled one like plain fine-tuning.
- the losses go backward one after the other, which gives the same gradient for less memory.
- regression: the task loss is the squared error (the paper has no regression task).
- a checkpoint without a masked-LM head: ``language_model_head: trained`` trains one in the
  search phase on the task's training text, the encoder frozen; the result is marked.
- ``two_phase`` fills anew in every step rather than once for all; its classifier starts from
  the checkpoint.
- BART predicts masked tokens with its decoder; it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from regft_core.config.schema import StrictModel, TaskConfig
from regft_core.errors import ModelError
from regft_core.lazy import torch
from regft_core.methods.base import Cost, ParameterGroup, Regulariser, SearchRun
from regft_core.rng import derive

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.batches import Batch
    from regft_core.training.step import Step
    from regft_core.training.trainee import Trainee

#: Diagnostics wait for the device, so they are taken every this many steps.
LOG_EVERY = 10


class MaskTuningConfig(StrictModel):
    """Options of Mask-tuning."""

    alpha: float = Field(0.6, ge=0, le=1, description="weight of the masked-LM loss; the task loss has 1 - alpha")
    mask_rate: float = Field(0.05, ge=0, lt=1, description="share of the maskable tokens that are masked")
    selection: Literal["count", "bernoulli"] = Field("count", description="a fixed number per input, or each by chance")
    fill: Literal["argmax", "sample", "mask"] = Field(
        "argmax", description="predicted tokens; mask: the classifier sees [MASK] itself (a control)"
    )
    coupling: Literal["joint", "separate", "two_phase"] = Field(
        "joint", description="one encoder; a second one trained beside it; or trained before it and frozen"
    )
    language_model_head: Literal["pretrained", "trained"] = Field(
        "pretrained", description="the checkpoint's own, or one trained in the search phase"
    )

    @model_validator(mode="after")
    def _consistent(self) -> MaskTuningConfig:
        wrong = []
        if self.alpha > 0 and self.mask_rate == 0:
            wrong.append(f"mask_rate: 0 leaves nothing to predict, but alpha is {self.alpha}; set alpha: 0 as well")
        if self.fill == "mask" and self.alpha > 0:
            wrong.append(f"fill: mask has no masked-LM loss, but alpha is {self.alpha}; set alpha: 0")
        if self.fill == "mask" and self.coupling != "joint":
            wrong.append(f"fill: mask uses no predictions, so coupling: {self.coupling} would do nothing; remove it")
        if self.coupling == "two_phase" and self.alpha > 0:
            wrong.append(f"coupling: two_phase has no masked-LM loss while fine-tuning; set alpha: 0, not {self.alpha}")
        if wrong:
            raise ValueError("\n".join(wrong))
        return self


class MaskTuningSearchConfig(StrictModel):
    """The search phase: the masked-LM head alone, or (``two_phase``) the whole masked LM."""

    epochs: int = Field(10, ge=1, le=10_000)
    learning_rate: float | None = Field(None, gt=0, description="the shared one when null")
    mask_rate: float = Field(0.15, gt=0, lt=1, description="share of the maskable tokens that are masked")


class MaskTuning(Regulariser):
    """Classifies sentences whose masked tokens were filled in by the model itself."""

    name = "mask_tuning"
    Config = MaskTuningConfig
    SearchConfig = MaskTuningSearchConfig
    off: ClassVar[dict[str, Any]] = {"alpha": 0.0, "mask_rate": 0.0}
    refused_architectures = ("bart",)
    padding_invariant = False  # which tokens are masked is drawn for the padded shape

    @classmethod
    def active(cls, options: MaskTuningConfig) -> bool:
        return options.alpha > 0 or options.mask_rate > 0

    @classmethod
    def search_phase(cls, options: MaskTuningConfig) -> bool:
        if not cls.active(options) or options.fill == "mask":
            return False
        return options.coupling == "two_phase" or options.language_model_head == "trained"

    @classmethod
    def program(cls, options: MaskTuningConfig, phase: str) -> tuple[str, ...] | None:
        if phase == "search":
            return ("masked",) if cls.search_phase(options) else None
        return ("masked",) if options.fill == "mask" else ("masked", "filled")

    @classmethod
    def cost(cls, options: MaskTuningConfig) -> Cost:
        if options.fill == "mask":
            return Cost()
        return Cost(2, 2) if options.alpha > 0 else Cost(2, 1)

    @classmethod
    def search_cost(cls, options: MaskTuningConfig, search: MaskTuningSearchConfig) -> Cost:
        # A head alone needs no backward pass through the frozen encoder.
        return Cost(1, 1) if options.coupling == "two_phase" else Cost(1, 0)

    @classmethod
    def search_epochs(cls, options: MaskTuningConfig, search: MaskTuningSearchConfig) -> float:
        return search.epochs

    @classmethod
    def degraded(cls, options: MaskTuningConfig, task: TaskConfig) -> list[str]:
        if not cls.search_phase(options) or options.language_model_head == "pretrained":
            return []
        return ["mask_tuning: its masked-LM head was trained on the task's training text, the checkpoint has none"]

    # -------------------------------------------------------------------------------- search

    def search_runs(self, rows: int) -> list[SearchRun]:
        """One run over all rows."""
        changes: dict[str, Any] = {"epochs": self.search.epochs, "max_steps": None}
        if self.search.learning_rate is not None:
            changes["learning_rate"] = self.search.learning_rate
        training = self.setting.training.model_copy(update=changes)
        return [SearchRun("search-0", 0, tuple(range(rows)), (), training)]

    def search_result(self, trainee: Trainee) -> dict[str, Tensor]:
        """The head's own tensors; with ``two_phase`` also the encoder's."""
        from regft_core.models.masked_lm import own_parameters

        tensors = {f"head/{name}": value for name, value in own_parameters(self.head, trainee.model).items()}
        if self.options.coupling == "two_phase":
            prefix = f"{trainee.model.base_model_prefix}."
            named = ((name, value) for name, value in trainee.named_raw() if name.startswith(prefix))
            tensors |= {f"encoder/{name.removeprefix(prefix)}": value for name, value in named}
        return {name: value.detach().cpu().clone() for name, value in tensors.items()}

    # ------------------------------------------------------------------------------- prepare

    def prepare(self, trainee: Trainee, handed: dict[str, Tensor] | None) -> None:
        self.trainee = trainee
        self.tied: tuple[str, ...] = ()
        self.second: Any = None
        self.searching = self.setting.phase != "finetune"
        if self.searching and not self.search_phase(self.options):
            return
        if trainee.tokenizer.mask_token_id is None:
            raise ModelError("mask_tuning: this tokenizer has no mask token; use a checkpoint of a masked LM")
        if self.options.fill == "mask":
            return
        if self.searching or self.options.coupling == "joint":
            self._attach_head(trainee, handed)
        else:
            self._add_second_encoder(trainee, handed)

    def _attach_head(self, trainee: Trainee, handed: dict[str, Tensor] | None) -> None:
        from regft_core.models.load import load_masked_lm_head
        from regft_core.models.masked_lm import own_parameters

        assert trainee.source is not None
        seed = derive(trainee.seed, "mask_tuning.head")
        head, pretrained = load_masked_lm_head(trainee.source, trainee.model, head_seed=seed)
        self._check_head(pretrained, trainee.source.name)
        if self.searching and self.options.coupling != "two_phase":
            trainee.model.requires_grad_(False)
        self.head = trainee.attach("mask_tuning", head)
        own = own_parameters(self.head, trainee.model)
        # The tied embedding is trained, but as the model's: an optimiser must get it once.
        attached = (name for name, _ in self.head.named_parameters())
        self.tied = tuple(f"attached.mask_tuning.{name}" for name in attached if name not in own)
        self._load(own, handed, "head/")

    def _add_second_encoder(self, trainee: Trainee, handed: dict[str, Tensor] | None) -> None:
        from regft_core.models.masked_lm import SecondEncoder, own_parameters

        assert trainee.source is not None
        self.second = SecondEncoder(
            trainee.source,
            dropout=self.setting.training.dropout,
            head_seed=derive(trainee.seed, "mask_tuning.head"),
            token_types=trainee.sites.token_types,
        ).to(trainee.device)
        self._check_head(self.second.pretrained, trainee.source.name)
        self.head = self.second.head
        self._load(own_parameters(self.head, self.second.encoder), handed, "head/")
        if self.options.coupling == "two_phase":
            self._load(dict(self.second.encoder.named_parameters()), handed, "encoder/")
            # Frozen, so that checkpoints need not hold it: the search's state restores it.
            self.second.requires_grad_(False).eval()
        else:
            trainee.attach("mask_tuning", self.second)

    def _check_head(self, pretrained: bool, source: str) -> None:
        wanted = self.options.language_model_head
        if wanted == "pretrained" and not pretrained:
            raise ModelError(
                f"mask_tuning: the checkpoint '{source}' has no masked-LM head; set language_model_head: trained and "
                "list the method under protocols.search_finetune, where one is trained on the task's training text"
            )
        if wanted == "trained" and pretrained:
            raise ModelError(
                f"mask_tuning: the checkpoint '{source}' has a masked-LM head of its own; set language_model_head: "
                "pretrained (without a search phase, list the method under protocols.finetune)"
            )

    @staticmethod
    def _load(own: dict[str, Any], handed: dict[str, Tensor] | None, prefix: str) -> None:
        with torch.no_grad():
            for key, value in (handed or {}).items():
                if key.startswith(prefix):
                    own[key.removeprefix(prefix)].copy_(value)

    def frozen(self) -> tuple[str, ...]:
        return self.tied

    def parameter_groups(self) -> list[ParameterGroup]:
        """Biases and norms of the head (and of a second encoder) are not decayed, as elsewhere."""
        attached = dict(self.trainee.attached.named_parameters(prefix="attached"))
        vectors = {
            name: parameter
            for name, parameter in attached.items()
            if name.startswith("attached.mask_tuning.") and parameter.dim() < 2 and name not in self.tied
        }
        return [ParameterGroup(vectors, weight_decay=0.0)] if vectors else []

    # ------------------------------------------------------------------------------ the step

    def backward(self, step: Step) -> Tensor:
        """The masked pass with its loss, then the filled pass with the task's (equation 1)."""
        from regft_core.models.masked_lm import with_tokens

        if self.searching:
            return self._search_step(step)
        positions = self.positions(step, self.options.mask_rate)
        if self.options.fill == "mask":
            masked = with_tokens(step.batch, positions, self.trainee.tokenizer.mask_token_id)
            loss = step.task_loss(step.forward("masked", batch=masked))
            step.backward(loss)
            return loss.detach()
        alpha = self.options.alpha
        batch, total = step.batch, 0.0
        if positions[0].numel() > 0:
            with torch.set_grad_enabled(alpha > 0):
                logits = self.masked_logits(step, positions)
                targets = step.batch.input_ids[positions]
                masked_loss = torch.nn.functional.cross_entropy(logits, targets)
            if alpha > 0:
                step.backward(alpha * masked_loss)
            total = alpha * masked_loss.detach()
            predicted = self.predict(step, logits.detach())
            batch = with_tokens(step.batch, positions, predicted)
            self._log(step, masked_loss, predicted, targets)
        loss = (1 - alpha) * step.task_loss(step.forward("filled", batch=batch))
        step.backward(loss)
        return total + loss.detach()

    def _search_step(self, step: Step) -> Tensor:
        """Masked language modelling only."""
        positions = self.positions(step, self.search.mask_rate)
        logits = self.masked_logits(step, positions)
        # An empty sum keeps the graph alive when a batch has nothing to mask.
        loss = torch.nn.functional.cross_entropy(logits, step.batch.input_ids[positions], reduction="sum")
        loss = loss / max(1, positions[0].numel())
        step.backward(loss, passes=1.0 if self.options.coupling == "two_phase" else 0.0)
        return loss.detach()

    def positions(self, step: Step, rate: float) -> tuple[Tensor, Tensor]:
        """(rows, columns) of the tokens to mask in this step."""
        from regft_core.models.masked_lm import choose_positions

        maskable = (step.batch.special_mask == 0) & (step.batch.attention_mask == 1)
        if self.setting.keyword_segment is not None:
            maskable &= step.batch.segment != (0 if self.setting.keyword_segment == "text" else 1)
        generator = step.generator("mask_tuning.positions")
        chosen = choose_positions(maskable, rate, self.options.selection, generator)
        rows, columns = chosen.nonzero(as_tuple=True)
        return rows, columns

    def masked_logits(self, step: Step, positions: tuple[Tensor, Tensor]) -> Tensor:
        """Vocabulary logits ``[masked positions, V]`` from the masked input, in training mode."""
        from regft_core.models.masked_lm import with_tokens

        masked = with_tokens(step.batch, positions, self.trainee.tokenizer.mask_token_id)
        if self.second is not None:
            hidden = self._second_pass(step, masked)
        else:
            # Another draw than that of the filled pass, whose dropout is that of plain fine-tuning.
            _, hidden = step.forward("masked", batch=masked, draw=1, hidden=True)
        return self.head(hidden[positions].float()).float()

    def _second_pass(self, step: Step, masked: Batch) -> Tensor:
        from regft_core.training.step import autocast

        key = ("dropout", self.trainee.phase, "mask_tuning.second", step.index, step.micro)
        torch.manual_seed(derive(self.trainee.seed, *key))
        step.forward_passes += 1
        with autocast(self.trainee.device, step.setting.training.precision):
            return self.second(masked)

    def predict(self, step: Step, logits: Tensor) -> Tensor:
        """Token ids ``[masked positions]`` to fill in."""
        if self.options.fill == "argmax":
            return logits.argmax(-1)
        generator = step.generator("mask_tuning.fill")
        return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)

    def _log(self, step: Step, loss: Tensor, predicted: Tensor, targets: Tensor) -> None:
        if step.index % LOG_EVERY != 0 or step.micro != 0:
            return
        special = torch.tensor(self.trainee.tokenizer.all_special_ids, device=predicted.device)
        shares = {
            "changed_share": (predicted != targets).float().mean(),
            "special_share": torch.isin(predicted, special).float().mean(),
            "masked_lm_loss": loss.detach(),
        }
        for name, value in shares.items():
            self.diagnostics.log(f"mask_tuning.{name}", step.index, float(value))

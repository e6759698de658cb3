"""TDT: task-guided disentangled tuning (Zeng et al., Findings of ACL 2022).

A linear unit gives every position of the embedding output E a confidence c. The encoder also
reads a distilled input, c E + (1 - c) mu_0, and a negative one, (1 - c) E. The loss adds
``w_distill`` times the distilled input's task loss (plus ``gamma`` times the norm of c) and
``w_rank`` times a hinge that wants the prediction of the distilled input near the clean one
and the negative one away from both. Predictions use the clean input only.

Differences between paper and released code (``variant``):
- penalty: gamma times the 2-norm of c, without a published value; released: none.
- negative divergences: coefficients 1 and 1; released: 1/2 and 1/2.
- divergences: summed over classes; released: divided by the number of classes.
- hinge: per example; released: on the mean over the batch (of one micro batch).
- mu_0: mean over real tokens; released: over padding too (``mu0_mask_padding`` overrides). The
  released code always pads to the maximal length, regft to the longest of the batch.
- the keyword segment of a task (CSL) stays untouched, as table 2's caption has it; the released code has no such rule,
  and no task with keywords: both variants follow the paper.
- regression: the paper reports a regression task without defining the losses; here squared
  errors and squared differences, marked as ours. Released: refused, see ``check_task``.
- grids of the weights: 0.5, 2, 4 (distilled) and 0.5, 1 (ranking); released: 0, 0.5, 1 and
  0.5, 1, 2, 4. The defaults, 0.5 and 1, are in both.

Decisions where both are silent:
- direction of the divergence: the paper's d(A, B) does not say; that of the released code,
  KL(B || A), in both variants (``divergence: printed`` reads KL(A || B)).
- the norm in the penalty is per example over its real tokens, then averaged.
- ``mode: hard`` (appendix D): straight-through Gumbel over two logits; in the distilled input
  a token that is not chosen gets the embedding output of [MASK] at its position; added tokens
  such as [CLS] keep theirs; the negative input stays (1 - c) E.
- ``mode: hard``: equation 9 prints log z although z are logits already; z itself is taken.
- BART: the same unit acts on the embedding outputs of encoder and decoder.
- without the ranking term the negative input is not computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from regft_core.hooks.base import Cost, Declares, Description, Flip, Handed, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import Batch, LayerSite, Step, Tensor, Trainee
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.models.poolings import mean
from regft_core.schema import Inconsistency
from regft_core.training import distances
from regft_core.training.perturbation import as_read


class TdtConfig(StrictModel):
    variant: Literal["paper", "released"] = "paper"
    w_distill: float = Field(0.5, ge=0, description="weight of the distilled input's loss (L_C)")
    w_rank: float = Field(1.0, ge=0, description="weight of the ranking loss (L_R)")
    margin: float = Field(2.0, ge=0, description="of the ranking loss; 0 or 2 in the paper")
    gamma: float = Field(0.0, ge=0, description="penalty on the norm of the confidence, inside L_C")
    mode: Literal["soft", "hard"] = Field("soft", description="hard: tokens kept or replaced by [MASK]")
    temperature: float = Field(1.0, gt=0, description="of the Gumbel softmax in hard mode; not published")
    perturbation: Literal["mean", "zero", "gaussian"] = Field("mean", description="mu_0 of soft mode")
    gaussian_std: float = Field(1.0, gt=0, description="of the Gaussian mu_0, one vector per example; not published")
    mu0_mask_padding: bool | None = Field(None, description="leave padding out of mu_0; by variant when null")
    divergence: Literal["released", "printed"] = Field("released", description="KL(B || A) or KL(A || B)")
    confidence: Literal["learned", "shuffled"] = Field(
        "learned", description="shuffled: the same values at random positions of each input (a control)"
    )

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Yield options that the released code does not have."""
        released = {"gamma": 0.0, "mode": "soft", "perturbation": "mean", "divergence": "released"}
        for name, value in released.items() if self.variant == "released" else ():
            if (given := getattr(self, name)) != value:
                yield (name,), f"{name}: {given} is not in the released code; use variant: paper"


def divergence(one: Tensor, two: Tensor, kind: str, direction: str = "released") -> Tensor:
    """d(one, two) of ``[B, K]`` logits, per example: KL(two || one), or the squared difference on regression."""
    other, reference = (one, two) if direction == "released" else (two, one)
    return distances.divergence(reference, other, kind, distances.kl)


def ranking_loss(clean: Tensor, distilled: Tensor, negative: Tensor, options: TdtConfig, kind: str) -> Tensor:
    """L_R of equation 6: a scalar from logits ``[B, K]``; every argument gets gradient."""

    def d(one: Tensor, two: Tensor) -> Tensor:
        return divergence(one, two, kind, options.divergence)

    near, far = d(distilled, clean), d(negative, clean) + d(negative, distilled)
    if options.variant == "released":
        classes = find(kind).log_probabilities(clean).shape[-1]
        near, far = (near / classes).mean(), (0.5 * far / classes).mean()
    return torch.clamp(options.margin + near - far, min=0.0).mean()


def contrasted(embedding: Tensor, confidence: Tensor, filler: Tensor, untouched: Tensor) -> tuple[Tensor, Tensor]:
    """The distilled and the negative view of embedding outputs ``[B, n, H]`` (equations 3 and 5).

    Args:
        confidence: ``[B, n, 1]``; ``filler``: what unimportant positions move to, ``[B, 1 or n, H]``.
        untouched: ``[B, n]``, True where both views are the embedding output itself.
    """
    rest, same = 1 - confidence, untouched.unsqueeze(-1)
    distilled = torch.where(same, embedding, confidence * embedding + rest * filler)
    return distilled, torch.where(same, embedding, rest * embedding)


def confidence_penalty(confidence: Tensor, mask: Tensor) -> Tensor:
    """Mean over examples of the 2-norm of ``confidence [B, n]`` where ``mask [B, n]`` is 1."""
    return ((confidence.square() * mask).sum(-1) + 1e-12).sqrt().mean()


class Tdt(Regulariser):
    name = "tdt"
    Config = TdtConfig
    off = {"w_distill": 0.0, "w_rank": 0.0}
    controls = {
        "random_confidence": Flip({"confidence": "shuffled"}, "which token gets which learned confidence is random")
    }
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "w_distill": "paper: section 3.2; of 0.5, 2 and 4, and in the released script's list",
        "w_rank": "paper: section 3.2; of 0.5 and 1, and in the released script's list",
        "margin": "paper: section 3.2; of 0 and 2",
        "gamma": "ours: off; equation 4 has it without a value, the released code has none",
        "mode": "paper: section 4.7; soft is the method, hard an ablation",
        "temperature": "ours: appendix D states no value",
        "perturbation": "paper: section 2.2",
        "gaussian_std": "ours: not stated; the standard normal law",
        "mu0_mask_padding": "ours: left out under paper; under released it counts (transformers/modeling_bert.py:729)",
        "divergence": "code: lemon0830/TDT TDT/transformers/modeling_bert.py:1113-1115; the paper states no direction",
        "confidence": "ours: learned is the method, shuffled its control",
    }

    @classmethod
    def declare(cls, options: TdtConfig) -> Declares:
        program = ("clean", "distilled", "negative") if options.w_rank > 0 else ("clean", "distilled")
        return Declares(
            active=options.w_distill > 0 or options.w_rank > 0,
            passes=program,
            description=Description(
                refused={"windows": "it ranks and masks the tokens of a row, and windows share some"}
                | ({"mask": "it puts a mask in place of each word"} if options.mode == "hard" else {}),
                cost=Cost(len(program), len(program)),
                degraded={
                    "regression": "tdt on regression: squared errors and differences are regft's substitute; the paper "
                    "defines no losses"
                },
            ),
        )

    @classmethod
    def check_options(cls, options: TdtConfig, phase: Phase) -> list[str]:
        hard = options.mode == "hard"
        idle = {
            "temperature": not hard,
            "perturbation": hard,
            "gaussian_std": hard or options.perturbation != "gaussian",
            "mu0_mask_padding": hard or options.perturbation != "mean",
        }
        under = "mode: hard" if hard else f"mode: soft, perturbation: {options.perturbation}"
        written = [name for name, is_idle in idle.items() if is_idle and name in options.model_fields_set]
        return [f"{name} has no effect under {under}; remove it" for name in written]

    @classmethod
    def check_task(cls, options: TdtConfig, task: TaskConfig) -> list[str]:
        if not find(task.kind).has_labels and options.variant == "released":
            return [
                "the released code compares predictions [B, 1] with labels [B], which pulls every distilled "
                "prediction to the batch mean, and its ranking loss is constant for one output; use variant: paper, "
                "whose squared errors are regft's own substitute"
            ]
        return []

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.views = self.declares.passes
        self.seen: list[tuple[Tensor, Tensor]] = []
        hard = self.options.mode == "hard"
        self.mask_token = trainee.mask_token("tdt.mode: hard") if hard else -1
        self.unit = trainee.attach_linear("tdt", "tdt.confidence", 2 if hard else 1)
        encoder: Any = getattr(trainee.model.base_model, "encoder", None)
        #: DeBERTa's convolution also reads padding, which therefore stays as it is.
        self._sees_padding = getattr(encoder, "conv", None) is not None
        trainee.hooks.on_embedding_output(self._show_views)

    def _show_views(self, tensor: Tensor, site: LayerSite) -> Tensor:
        """Put the views instead of the repeated embedding output ``[views * B, n, H]``."""
        current = self.trainee.current
        if current is None or tuple(name for name, _, _ in current.parts) != self.views:
            return tensor
        rows = tensor.transpose(0, 1) if site.batch_dim == 1 else tensor
        height = rows.shape[0] // len(self.views)
        mask = current.attention_mask[:height]
        kept = as_read(current.segment[:height] == self.setting.keywords, site.stack)
        # The first rows serve all views, so that these share the dropout mask of the embedding.
        clean = rows[:height]
        with torch.autocast(tensor.device.type, enabled=False):
            embedding = clean.float()
            confidence = self.confidence(embedding, site)
            if self.options.confidence == "shuffled":
                confidence = self.shuffled(confidence, mask.bool() & ~kept, site)
            self.seen.append((confidence.squeeze(-1), mask * ~kept))
            filler = rows[height : 2 * height].float() if self.options.mode == "hard" else self.mu0(embedding, mask)
            untouched = kept | (mask == 0) if self._sees_padding and self._masks_padding else kept
            views = [embedding, *contrasted(embedding, confidence, filler, untouched)]
        shown = torch.cat(views[: len(self.views)]).to(tensor.dtype)
        return shown.transpose(0, 1) if site.batch_dim == 1 else shown

    @property
    def _masks_padding(self) -> bool:
        given = self.options.mu0_mask_padding
        return self.options.variant == "paper" if given is None else given

    def confidence(self, embedding: Tensor, site: LayerSite) -> Tensor:
        """Confidence ``[B, n, 1]`` of embedding outputs ``[B, n, H]`` (equation 2), or sampled gates 0 and 1."""
        scores = self.unit(embedding)
        if self.options.mode == "soft":
            return scores.sigmoid()
        assert self.trainee.current is not None
        generator = self.trainee.generator("tdt.gumbel", *self.trainee.current.key, site.index)
        uniform = torch.rand(scores.shape, generator=generator, device=scores.device)
        gumbel = -(-uniform.clamp_min(1e-20).log()).clamp_min(1e-20).log()
        soft = ((scores + gumbel) / self.options.temperature).softmax(-1)[..., 1:]
        return (soft > 0.5).float() + (soft - soft.detach())

    def shuffled(self, confidence: Tensor, movable: Tensor, site: LayerSite) -> Tensor:
        """Confidence ``[B, n, 1]`` with its values at ``movable [B, n]`` positions in random order.

        Every input keeps its own values, so the rates are those that were learned; which token gets
        which is left to chance. Gradient flows to the values.
        """
        assert self.trainee.current is not None
        generator = self.trainee.generator("tdt.shuffle", *self.trainee.current.key, site.index)
        draws = torch.rand(movable.shape, generator=generator, device=movable.device)
        # Sorting moves the positions that stay behind the movable ones, in their own order.
        place = torch.arange(movable.shape[1], device=movable.device).expand_as(draws) + 2.0
        targets = torch.where(movable, torch.zeros_like(draws), place).argsort(dim=1, stable=True)
        sources = torch.where(movable, draws, place).argsort(dim=1, stable=True)
        order = torch.empty_like(sources).scatter_(1, targets, sources)
        return confidence.gather(1, order.unsqueeze(-1))

    def mu0(self, embedding: Tensor, mask: Tensor) -> Tensor:
        """The vector ``[B, 1, H]`` that unimportant positions move to; gradient is not stopped."""
        if self.options.perturbation == "zero":
            return torch.zeros_like(embedding[:, :1])
        if self.options.perturbation == "gaussian":
            assert self.trainee.current is not None
            generator = self.trainee.generator("tdt.gaussian", *self.trainee.current.key)
            shape = embedding[:, :1].shape
            return torch.randn(shape, generator=generator, device=embedding.device) * self.options.gaussian_std
        if not self._masks_padding:
            return embedding.mean(1, keepdim=True)
        return mean(embedding, mask, "first").unsqueeze(1)

    def backward(self, step: Step) -> Tensor:
        """All views as one batch; L = L_cla + w_distill * L_C + w_rank * L_R (equation 7)."""
        options = self.options
        clean, distilled, *others = self.predictions(step)
        loss = step.task_loss(clean)
        if options.w_distill > 0:
            distill = step.task_loss(distilled)
            if options.gamma > 0:
                penalties = [confidence_penalty(confidence, mask) for confidence, mask in self.seen]
                distill = distill + options.gamma * torch.stack(penalties).mean()
            loss = loss + options.w_distill * distill
        if others:
            rank = ranking_loss(clean, distilled, others[0], options, step.setting.kind)
            loss = loss + options.w_rank * rank
            self.diagnostics.read(step, ranking_loss=rank)
        confidence, mask = self.seen[0]
        self.diagnostics.read(step, mean_confidence=(confidence * mask).sum() / mask.sum().clamp_min(1))
        step.backward(loss, passes=len(self.views))
        return loss.detach()

    def predictions(self, step: Step) -> tuple[Tensor, ...]:
        """Logits ``[B, K]`` of every view, in the order of the step program."""
        from regft_core.training.step import repeat_batch

        batch = repeat_batch(step.batch, len(self.views))
        if self.options.mode == "hard":
            batch = self._with_masked_second_view(batch, step.batch.input_ids.shape[0])
        self.seen.clear()
        return step.forward("clean", batch=batch, parts=self.views).chunk(len(self.views))

    def _with_masked_second_view(self, batch: Batch, height: int) -> Batch:
        """[MASK] in place of every token of the second view, ``height`` rows: its embedding output is the filler."""
        masked = batch.input_ids.clone()
        inside = batch.segment[height : 2 * height] >= 0
        masked[height : 2 * height].masked_fill_(inside, self.mask_token)
        return dataclasses.replace(batch, input_ids=masked)

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """The confidence unit, which a plain model cannot hold (figures 3, 4 and 6 of the paper)."""
        return {f"unit.{name}": value for name, value in self.unit.state_dict().items()}

    def token_confidence(self, kept: Mapping[str, Tensor], embedding: Tensor) -> Tensor | None:
        """Equation 2 with the unit as it was learned; in hard mode the probability that a token is kept.

        With ``confidence: shuffled`` these are the values before they were moved to random positions.
        """
        scores = torch.nn.functional.linear(embedding.float(), kept["unit.weight"], kept["unit.bias"])
        return scores.sigmoid()[..., 0] if self.options.mode == "soft" else scores.softmax(-1)[..., 1]

    def input_views(
        self, kept: Mapping[str, Tensor], embedding: Tensor, mask: Tensor, untouched: Tensor
    ) -> Mapping[str, Tensor] | None:
        """The distilled input (``positive``) and the negative one, equations 3 and 5, with mu_0 over real tokens.

        None where an input has no such view that is determined: sampled gates (hard), values moved at random
        (shuffled), a Gaussian mu_0.
        """
        options = self.options
        if options.mode == "hard" or options.confidence == "shuffled" or options.perturbation == "gaussian":
            return None
        found = self.token_confidence(kept, embedding)
        assert found is not None
        mu0 = mean(embedding, mask, "first").unsqueeze(1)
        filler = torch.zeros_like(mu0) if options.perturbation == "zero" else mu0
        views = contrasted(embedding, found.unsqueeze(-1), filler, untouched)
        return dict(zip(("positive", "negative"), views, strict=True))

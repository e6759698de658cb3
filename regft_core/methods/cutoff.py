"""Cutoff: parts of the input's embedding are erased in a second pass (Shen et al., 2020).

In the second pass int(ratio * length) tokens of every input lose their embedding output (after norm and
dropout) and their place in the attention mask; ``kind: span`` erases one run of tokens, ``kind: feature``
int(ratio * H) dimensions of all tokens instead. The loss is CE(clean) + alpha * CE(cut) + beta * JS, with JS
the Jensen-Shannon divergence of the two predictions, averaged over the batch. Tokens and dimensions are
drawn with replacement, and any token can be cut, also the first.

Differences between paper and released code (``variant``):
- divergence: (KL(p || m) + KL(q || m)) / 2; released: its reverse, (KL(m || p) + KL(m || q)) / 2.
- ``kind: token``: the clean cross-entropy is part of the loss; released: it is left out there, though not
  for spans and dimensions.
- regression: the squared difference of the outputs in place of JS, regft's own substitute, marked;
  released: JS of one output, which is 0.

Decisions:
- the cut pass has dropout masks of its own, as in the released code, so ``ratio: 0`` keeps a divergence: that
  is the control.
- a task's keyword segment is never cut; with ``pooling: cls`` or ``last`` neither is the summary token, whose vector is
  all that the head reads, with ``mask`` the mask, nor in DeBERTa the first token, where one outside the attention mask
  attends to all alike, padding too.
- texts of a pair that are encoded separately are cut one by one.
- BART: the decoder reads the same cut tokens, without a place in its attention mask to take from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Cost, Declares, Description, DropoutWish, Flip, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Batch, Handed, LayerSite, MainPass, Step, Tensor, Trainee, reads_labels
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.training.distances import divergence, jensen_shannon, reversed_jensen_shannon
from regft_core.training.perturbation import as_read

CUT = "cutoff.cut"
SUBSTITUTE = "cutoff on regression: the squared difference is regft's substitute; the paper compares distributions"


class CutoffConfig(StrictModel):
    variant: Literal["paper", "released"] = "paper"
    kind: Literal["token", "span", "feature"] = "token"
    ratio: float = Field(0.1, ge=0, lt=1, description="share of the tokens, or dimensions, that are erased")
    alpha: float = Field(1.0, ge=0, description="weight of the cut input's task loss")
    beta: float = Field(1.0, ge=0, description="weight of the divergence")


class Cutoff(Regulariser):
    name = "cutoff"
    Config = CutoffConfig
    off = {"alpha": 0.0, "beta": 0.0}
    controls = {"no_cut": Flip({"ratio": 0.0}, "nothing is erased in the second pass")}
    sources = {
        "variant": "ours: the printed objective; the code leaves the clean cross-entropy of token cutoff out",
        "kind": "paper: Zeng et al. 2022, section 4.8 and table 5, which compare with token cutoff",
        "ratio": "code: dinghanshen/Cutoff run_glue.sh:14",
        "alpha": "code: dinghanshen/Cutoff run_glue.sh:15",
        "beta": "code: dinghanshen/Cutoff run_glue.sh:16",
    }

    @classmethod
    def declare(cls, options: CutoffConfig) -> Declares:
        compares = options.variant == "paper" and options.beta > 0
        return Declares(
            active=options.alpha > 0 or options.beta > 0,
            dropout=DropoutWish(either=options.ratio == 0),
            passes=(CUT,),
            reads_positions=None if options.kind == "feature" else "inside",
            description=Description(cost=Cost(2, 2), degraded={"regression": SUBSTITUTE} if compares else {}),
        )

    @classmethod
    def check_options(cls, options: CutoffConfig, phase: Phase) -> list[str]:
        return reads_labels(phase) if options.alpha > 0 or options.variant == "released" else []

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.cut: Tensor | None = None
        trainee.hooks.on_embedding_output(self._erase)

    def _erase(self, tensor: Tensor, site: LayerSite) -> Tensor:
        """The embedding output of the cut pass with 0 in what is erased; others as they are."""
        if (current := self.trainee.running(CUT)) is None:
            return tensor
        rows = tensor.transpose(0, 1) if site.batch_dim == 1 else tensor
        if self.options.kind == "feature":
            generator = self.trainee.generator("cutoff.features", *current.key)
            cut = cut_features(rows.shape[0], rows.shape[-1], self.options.ratio, generator)
        else:
            assert self.cut is not None
            cut = as_read(self.cut, site.stack).unsqueeze(-1)
        erased = rows.masked_fill(cut, 0.0)
        return erased.transpose(0, 1) if site.batch_dim == 1 else erased

    def positions(self, step: Step) -> Tensor:
        """Booleans ``[rows, n]`` of the tokens to cut in this step."""
        mask = step.batch.attention_mask.bool()
        generator = step.generator("cutoff.positions")
        choose = cut_span if self.options.kind == "span" else cut_tokens
        return choose(mask, self.allowed(step.batch), self.options.ratio, generator)

    def allowed(self, batch: Batch) -> Tensor:
        """Booleans ``[rows, n]`` of the real tokens that may be cut."""
        from regft_core.models.heads import MaskClassifier, PooledClassifier

        allowed = batch.attention_mask.bool() & (batch.segment != self.setting.keywords)
        model = self.trainee.model
        if isinstance(model, MaskClassifier):
            allowed = allowed & (batch.input_ids != model.mask_token)
        rank, last = batch.attention_mask.cumsum(1), batch.attention_mask.sum(1, keepdim=True)
        if isinstance(model, PooledClassifier) and model.pooling in ("cls", "last"):
            allowed = allowed & (rank != (1 if model.summary == "first" else last))
        elif self.trainee.sites.architecture.startswith("deberta"):
            allowed = allowed & (rank != 1)
        return allowed

    def terms(self, step: Step, main: MainPass) -> Tensor:
        """alpha times the cut input's task loss, and beta times its divergence."""
        batch = step.batch
        if self.options.kind != "feature":
            self.cut = self.positions(step)
            mask = batch.attention_mask.masked_fill(self.cut, 0)
            # Whether anything was cut from a batch without padding is drawn, so only the device knows: there a mask is
            # built in any case. On a CPU transformers may look, and leaves out a mask that hides nothing.
            padded = True if batch.padded or self.trainee.grouped else None
            batch = dataclasses.replace(batch, attention_mask=mask, padded=padded)
        logits = step.forward(CUT, batch=batch, draw=CUT)
        self.cut = None
        task, divergence = step.task_loss(logits), self.divergence(main.logits, logits, step.setting.kind)
        self.diagnostics.read(step, task_loss=task, divergence=divergence)
        total = self.options.alpha * task + self.options.beta * divergence
        if self.options.variant == "released" and self.options.kind == "token":
            total = total - main.loss
        return total

    def divergence(self, clean: Tensor, cut: Tensor, kind: str) -> Tensor:
        """A scalar from ``[B, K]`` logits."""
        released = self.options.variant == "released"
        if released and not find(kind).has_labels:
            return torch.zeros((), device=clean.device)
        return divergence(clean, cut, kind, reversed_jensen_shannon if released else jensen_shannon).mean()


def counts(mask: Tensor, ratio: float) -> Tensor:
    """int(ratio * length) per row, ``[rows, 1]``."""
    return (mask.sum(1, keepdim=True).double() * ratio).floor().long()


def cut_tokens(mask: Tensor, allowed: Tensor, ratio: float, generator: torch.Generator) -> Tensor:
    """Booleans ``[rows, n]``: ``counts`` draws with replacement among the ``allowed`` positions of each row."""
    rows, columns = mask.shape
    most = int(columns * ratio)
    # Drawn token by token, so that the draws of one row do not depend on the longest.
    draws = torch.rand((most, rows), generator=generator, device=mask.device).T
    place = (draws * allowed.sum(1, keepdim=True)).long()
    # The positions of each row with the allowed ones in front, in their order.
    order = (~allowed).long().argsort(dim=1, stable=True)
    used = torch.arange(most, device=mask.device) < counts(mask, ratio)
    # A draw at a time against all columns: a scatter of repeated places has no fixed order on a GPU.
    hits = order.gather(1, place).unsqueeze(-1) == torch.arange(columns, device=mask.device)
    return (hits & used.unsqueeze(-1)).any(1) & allowed


def cut_span(mask: Tensor, allowed: Tensor, ratio: float, generator: torch.Generator) -> Tensor:
    """Booleans ``[rows, n]``: one run of ``counts`` real tokens per row, less those that are not allowed."""
    length, count = mask.sum(1, keepdim=True), counts(mask, ratio)
    draws = torch.rand((mask.shape[0], 1), generator=generator, device=mask.device)
    start = (draws * (length - count)).long()
    rank = mask.long().cumsum(1) - 1
    return (rank >= start) & (rank < start + count) & allowed


def cut_features(rows: int, width: int, ratio: float, generator: torch.Generator) -> Tensor:
    """Booleans ``[rows, 1, width]``: int(ratio * width) draws with replacement per row."""
    chosen = torch.randint(width, (rows, int(width * ratio)), generator=generator, device=generator.device)
    cut = torch.zeros((rows, width), dtype=torch.bool, device=generator.device)
    return cut.scatter(1, chosen, True).unsqueeze(1)
